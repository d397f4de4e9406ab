"""Reads a page as a browser does."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "circle", "path", "input"}


class Reader(HTMLParser):
    """Collects the elements of a page, and the tags that are closed out of order."""

    def __init__(self, text: str):
        super().__init__()
        self.elements, self.stack, self.wrong, self.texts = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.texts.append((tag, dict(attributes), []))
        if tag not in VOID:
            self.stack.append((tag, len(self.texts) - 1))

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.stack or self.stack.pop()[0] != tag:
            self.wrong.append(f"</{tag}> at line {self.getpos()[0]}")

    def handle_data(self, data):
        for _, place in self.stack:
            self.texts[place][2].append(data)

    def of(self, name: str) -> list[str]:
        return [a[name] for _, a in self.elements if name in a]
