// Keeping a container's children in step with a list, touching only what changed.

/**
 * Each item becomes one node made by `render(item, index, old)`; a node is kept while `same(before, now)` says so. In a remade
 * node those `<details>` that the reader opened or shut stay so; the others are as they were made.
 */
export class SyncedList {
  #items = [];
  #nodes = [];

  constructor(container, { render, same = Object.is }) {
    this.container = container;
    this.render = render;
    this.same = same;
  }

  update(items) {
    items.forEach((item, index) => {
      const old = this.#nodes[index];
      if (old && this.same(this.#items[index], item)) return;
      const node = this.render(item, index);
      for (const part of detailsOf(node)) part.dataset.made = part.open ? "open" : "shut";
      if (old) {
        keepOpen(old, node);
        old.replaceWith(node);
      } else this.container.append(node);
      this.#nodes[index] = node;
    });
    for (const stale of this.#nodes.splice(items.length)) stale.remove();
    this.#items = items;
  }
}

function keepOpen(old, node) {
  const [before, after] = [detailsOf(old), detailsOf(node)];
  if (before.length > after.length) return; // it is not known which is which
  before.forEach((item, index) => {
    if (item.open !== (item.dataset.made === "open")) after[index].open = item.open;
  });
}

const detailsOf = (node) => [node, ...node.querySelectorAll("details")].filter((item) => item.localName === "details");
