// The one place where HTML becomes DOM: through DOMPurify, as a fragment, never through innerHTML.

import DOMPurify from "../../vendor/dompurify.js";

const RULES = {
  RETURN_DOM_FRAGMENT: true,
  ALLOWED_TAGS: [
    "p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "s", "del", "sub", "sup", "blockquote", "ul", "ol", "li",
    "code", "pre", "table", "thead", "tbody", "tr", "th", "td", "a", "span",
  ],
  ALLOWED_ATTR: ["href", "title", "start", "class", "data-cite", "data-math", "data-display", "data-lang"],
  ADD_URI_SAFE_ATTR: ["start", "data-cite", "data-math", "data-display", "data-lang"], // their values are no addresses
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

/** Returns a fragment that holds only text markup: no pictures, forms, frames, styles, ids or foreign link schemes. */
export function sanitized(html) {
  const fragment = DOMPurify.sanitize(html, RULES);
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  return fragment;
}
