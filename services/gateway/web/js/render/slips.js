// Which slip asks for which kind of decision.

import { ApprovalCard } from "./approval.js";
import { ContinueCard } from "./continue.js";
import { QuestionCard } from "./questions.js";

const CARDS = { question: QuestionCard, continue: ContinueCard };

/** Makes the slip of a pending record; `options` are `decide`, `now` and `heading`. */
export function slipFor(approval, options) {
  const Card = CARDS[approval.kind] ?? ApprovalCard;
  return new Card(approval, options);
}
