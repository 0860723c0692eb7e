// Elements. Names of disks are text and never markup, whoever chose them.

/** The element of this id. */
export const at = (id) => document.getElementById(id);

/** An element with attributes and children; texts become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Gives an element its text, if it has another. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A list of facts: pairs of a name and a text. */
export function facts(list, pairs) {
  const items = pairs
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => make("li", {}, `${name} `, make("b", {}, value)));
  list.replaceChildren(...items);
}

/**
 * Fills a table. Columns have a title, a class, and say what a row's cell holds: a text, or an
 * element. Rows that are there are used again, so that who has the focus keeps it.
 */
export class Table {
  constructor(element, columns, { caption, sort, empty }) {
    this.columns = columns;
    this.empty = empty;
    this.sorted = sort ?? null;
    this.body = make("tbody");
    this.rows = new Map();
    this.heads = columns.map((column) => this.head(column));
    element.replaceChildren(
      make("caption", { class: "skip" }, caption),
      make("thead", {}, make("tr", {}, ...this.heads)),
      this.body,
    );
  }

  head(column) {
    const cell = make("th", { scope: "col", class: column.class ?? "" });
    if (!column.by) {
      cell.append(column.title);
      return cell;
    }
    const order = () => {
      const down = this.sorted?.column === column.title ? !this.sorted.down : column.down ?? false;
      this.sorted = { column: column.title, down };
      this.fill(this.last ?? []);
    };
    cell.append(make("button", { type: "button", on: { click: order } }, column.title));
    return cell;
  }

  /** The items in the order that was asked for. */
  ordered(items) {
    this.columns.forEach((column, n) => {
      const isIt = this.sorted?.column === column.title;
      if (isIt) this.heads[n].setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else this.heads[n].removeAttribute("aria-sort");
    });
    const by = this.columns.find((column) => column.title === this.sorted?.column)?.by;
    if (!by) return items;
    const sign = this.sorted.down ? -1 : 1;
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    return [...items].sort((a, b) => sign * compare(by(a), by(b)) || compare(a.key, b.key));
  }

  /** Shows items, each with a `key`, `most` of them. */
  fill(items, most = this.most ?? Infinity) {
    this.last = items;
    this.most = most;
    const shown = this.ordered(items).slice(0, most);
    const kept = new Map();
    const rows = shown.map((item) => {
      const row = this.rows.get(item.key) ?? this.row();
      kept.set(item.key, row);
      this.columns.forEach((column, n) => {
        const content = column.cell(item);
        const cell = row.cells[n];
        const text = typeof content === "string" ? content : null;
        if (text !== null) say(cell, text);
        else if (cell.dataset.is !== content.dataset.is || !cell.firstChild) {
          cell.replaceChildren(content);
          if (content.dataset.is) cell.dataset.is = content.dataset.is;
        }
      });
      return row;
    });
    this.rows = kept;
    if (rows.length === 0) {
      rows.push(make("tr", {}, make("td", { colspan: this.columns.length, class: "nothing" }, this.empty)));
    }
    const same = rows.length === this.body.children.length && rows.every((row, n) => row === this.body.children[n]);
    if (!same) {
      const focus = document.activeElement;
      this.body.replaceChildren(...rows);
      if (this.body.contains(focus)) focus.focus();
    }
    return shown.length;
  }

  row() {
    return make("tr", {}, ...this.columns.map((column) => make("td", { class: column.class ?? "" })));
  }
}
