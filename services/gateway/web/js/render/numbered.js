// Names for things that may stand beside others of the same name.

import { t } from "../i18n/index.js";

/** The name alone when it is the only one, else with its place among them. */
export function numbered(name, number, of) {
  return of > 1 ? t("numbered", { name, number, of }) : name;
}

/** Tells each card its place among the cards shown. */
export function placeAll(cards) {
  const all = [...cards];
  all.forEach((card, index) => card.place(index + 1, all.length));
}
