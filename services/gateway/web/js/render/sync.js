// Keeping a container's children in step with a list, touching only what changed.

/**
 * Each item becomes one node made by `render(item, index, old)`; a node is kept while `same(before, now)` says so. A remade
 * node keeps which of its `<details>` are open.
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
  const before = [old, ...old.querySelectorAll("details")].filter((item) => item.localName === "details");
  const after = [node, ...node.querySelectorAll("details")].filter((item) => item.localName === "details");
  if (before.length === after.length) before.forEach((item, index) => { after[index].open = item.open; }); // else it is not known which is which
}
