// What the page can do beyond being read: filter the ledger, copy commands, save tables.
// Nothing here is needed to read it: controls are hidden until this script shows them.
"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // The ledger: a row is shown if each of the four filters lets it through.
  function filters(form) {
    const rows = all("table.ledger tr.row").map((row) => ({
      row,
      paper: row.parentElement.dataset.paper,
      words: row.textContent.toLowerCase(),
    }));
    function apply() {
      const verdicts = all("input[name=verdict]:checked", form).map((box) => box.value);
      const { paper, kind, words } = form.elements;
      const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const { row, paper: of, words: text } of rows) {
        row.hidden = !(
          (!verdicts.length || verdicts.includes(row.dataset.verdict)) &&
          (!paper.value || of === paper.value) &&
          (!kind.value || row.dataset.kind === kind.value) &&
          asked.every((word) => text.includes(word))
        );
        count += !row.hidden;
      }
      for (const body of all("table.ledger tbody"))
        body.hidden = !all("tr.row", body).some((row) => !row.hidden);
      form.elements.count.value =
        count === rows.length ? "" : `${count} of ${rows.length} rows`;
    }
    form.addEventListener("input", apply);
    form.addEventListener("reset", () => setTimeout(apply));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    apply(); // a browser keeps what was chosen when a page is loaded again
  }

  // The files: one compressed block, unpacked when the first of them is asked for.
  let files = null;
  async function unpack() {
    const text = document.getElementById("files").textContent;
    const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }
  async function save(name) {
    files = files || (await unpack());
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([files[name]], { type: "text/plain" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async function copy(pre, button) {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(pre); // the reader's own Ctrl-C
      button.textContent = "selected";
    }
    setTimeout(() => (button.textContent = "copy"), 1500);
  }

  const form = document.getElementById("filters");
  if (form) filters(form);
  for (const button of typeof DecompressionStream === "undefined" ? [] : all("button.save")) {
    button.hidden = false;
    button.addEventListener("click", () => save(button.dataset.file));
  }
  for (const pre of all("pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "copy";
    button.addEventListener("click", () => copy(pre, button));
    pre.before(button);
  }

  // What a flag means, and what a mark of the contents says, where the mouse rests on it.
  const meanings = new Map(
    all(".meanings dt .flag").map((f) => [f.textContent, f.parentElement.nextElementSibling.textContent])
  );
  for (const flag of all(".flag")) flag.title = meanings.get(flag.textContent) || "";
  for (const mark of all(".mark")) mark.title = mark.ariaLabel;

  // A finding shows a copy of the first picture of its section.
  for (const link of all("a.peek")) {
    const [drawn, legend] = [".panels > *", ".legend"].map((part) =>
      document.querySelector(`${link.hash} ${part}`)?.cloneNode(true)
    );
    if (!drawn) continue; // the section is on another page
    const whole = link.cloneNode();
    whole.append(drawn);
    link.closest("li").append(whole, legend || "");
  }

  // A menu of the contents closes when a place was chosen, or on Escape.
  const menus = all("nav details");
  const shut = (but) => menus.forEach((menu) => menu === but || (menu.open = false));
  for (const menu of menus) menu.addEventListener("toggle", () => menu.open && shut(menu));
  for (const link of all("nav a"))
    link.addEventListener("click", () => matchMedia("(max-width: 75rem)").matches && shut());
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && matchMedia("(max-width: 75rem)").matches) shut();
  });
})();
