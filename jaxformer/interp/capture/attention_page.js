const data = JSON.parse(document.getElementById("data").textContent);
const large = document.getElementById("large");
const holder = document.getElementById("tokens");
let current = 0;

function levels(head) {
  return Uint8Array.from(atob(head.map), (sign) => sign.charCodeAt(0));
}

function draw(canvas, head) {
  const [rows, columns] = head.size;
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  levels(head).forEach((level, i) => {
    const light = Math.sqrt(level / 255);  // small weights stay visible
    image.data.set([255 - 255 * light, 255 - 141 * light, 255 - 77 * light, 255], 4 * i);
  });
  context.putImageData(image, 0, 0);
}

function point(query) {
  const head = data.heads[current], columns = head.size[1], map = levels(head);
  [...holder.children].forEach((span, key) => {
    const share = query === null ? 0 : map[query * columns + key] / 255;
    span.style.setProperty("background-color", `rgba(var(--mark), ${share.toFixed(3)})`);
    span.classList.toggle("from", key === query);
    span.title = query === null ? "" : share.toFixed(2);
  });
}

function choose(i) {
  current = i;
  draw(large, data.heads[i]);
  document.getElementById("name").textContent = data.heads[i].name;
  document.querySelectorAll(".heads button").forEach((button, k) => button.setAttribute("aria-pressed", k === i));
  point(data.heads[i].size[0] - 1);
}

data.tokens.forEach((text, i) => {
  const span = document.createElement("span");
  span.textContent = text;
  span.tabIndex = 0;
  span.addEventListener("mouseenter", () => point(i));
  span.addEventListener("focus", () => point(i));
  holder.append(span);
});
data.heads.forEach((head, i) => {
  const button = document.createElement("button"), canvas = document.createElement("canvas");
  draw(canvas, head);
  button.append(canvas, head.name);
  button.addEventListener("click", () => choose(i));
  document.querySelector(".heads").append(button);
});
choose(0);
