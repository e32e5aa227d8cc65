"""The words of the page, each with the one sentence that defines it."""

import html
import re

TERMS = {
    "parameters": "every number that training may change; D is how many there are",
    "parameter direction": "a small change of all parameters at once; D of them are independent, one "
    "for each parameter",
    "Jacobian": "the matrix of the derivatives of every output at every sample (rows) by every "
    "parameter (columns)",
    "rows of the Jacobian": "one for each sample and output; n samples with o outputs show at most "
    "n·o independent directions",
    "functional dimension": "how many independent changes of the function the parameters can make on "
    "the sample: the rank of the Jacobian of all outputs by all parameters",
    "exact": "computed without rounding and without a threshold, in whole numbers modulo a prime; "
    "floating-point numbers are fractions, and the certificate proves the result",
    "gap": "the smallest singular value that counts divided by the largest that does not; near 1 "
    "the rank depends on the threshold",
    "singular value": "how far the outputs on the sample move when the parameters move by one in its "
    "direction",
    "parameter without effect": "its column of the Jacobian is zero: every path through it is closed on "
    "the whole sample",
    "symmetry": "a change of the parameters that does not change the function, on the sample or "
    "everywhere",
    "gradient flow": "gradient descent with infinitely small steps",
    "conserved quantity": "a number made of the parameters that gradient flow cannot change, "
    "whatever the data and the loss; "
    "each belongs to a continuous symmetry",
    "reduction": "a smaller network that computes the same on the sample: units that are off, "
    "linear or copies of others are removed, and the layers beside them take over what they did",
    "unit": "a neuron whose activation has a kink, such as ReLU, or one entry of a channel; it is "
    "on where it passes its input on",
    "linear region": "a set of inputs on which every unit is on or off in the same way, so that "
    "the network is affine",
    "always on": "the unit's input is positive at every sample looked at: the unit is linear there",
    "always off": "the unit's input is not positive at any sample looked at: it could be removed",
    "dead channel": "a channel that is off at every pixel of every sample looked at",
    "inactive neurons": "weights into or out of a unit that is off at every sample",
    "closed paths": "every path through the parameter passes a unit, or one entry of a channel, that "
    "is off at every sample",
    "scalings": "multiply the weights into a ReLU unit by c > 0 and divide the weights out of it by "
    "c: the function stays the same",
    "linear neurons": "units that are always on are linear; any invertible mixture of them gives the "
    "same function",
    "translations": "add a constant to a unit that is always on, and change the biases of the next "
    "layer so that they undo it",
    "shared sign patterns": "units that are on at the same samples can be mixed with each other",
    "relations between patterns": "units whose patterns add up, as when one is on exactly where "
    "another is off: a change of one can be undone by the others",
    "confined in one unit": "the inputs of a unit lie in a subspace; changes of its weights outside "
    "of it have no effect",
    "confined in one layer": "the inputs of a layer lie in a subspace; changes of all its weights "
    "together outside of it have no effect",
    "confined in two layers": "changes of the weights of two layers in a row cancel on everything "
    "that reaches them",
    "linear segments": "between units that switch the network is linear, and factors of a "
    "product can be changed while the product stays the same",
    "too few samples in a region": "directions that would show if the same linear regions held "
    "more samples",
    "unexplained": "directions that change nothing on the sample, for a reason that was not found",
    "NTK": "the neural tangent kernel, Jacobian times its transpose; its eigenvalues are the "
    "squared singular values",
    "effective rank": "exp of the entropy of the eigenvalues divided by their sum: about how many "
    "directions make up the kernel",
    "stable rank": "the sum of the eigenvalues divided by the largest of them",
    "alignment": "gᵀΘg/‖g‖² for the kernel Θ and the gradient g of the loss in the outputs: how fast "
    "a small step of gradient descent lowers the loss, relative to ‖g‖²",
    "sharpness": "the largest eigenvalue of the loss's Hessian in the parameters",
    "learning rate": "with a rate above 2/sharpness, a step of gradient descent overshoots along "
    "the direction of largest curvature",
    "bottleneck": "layers that all pass on only k directions: k singular values of their weights "
    "are near 1, the others near 0",
    "fit": "r², one minus the mean squared error divided by the variance of the targets; for "
    "classes the share of samples that are right",
    "kernel drift": "how far the tangent kernel has moved from its first record, ‖Θ − Θ₀‖/‖Θ₀‖; "
    "near 0 training is that of a linear model",
}
_ROWS = (
    ("parameters without effect", "parameter without effect"),
    ("parameters", "parameters"),
    ("samples × outputs", "rows of the Jacobian"),
    ("functional dimension", "functional dimension"),
    ("reached after", "functional dimension"),
    ("float", "gap"),
    ("directions that change nothing", "symmetry"),
    ("symmetries by structure", "symmetry"),
    ("conserved", "conserved quantity"),
    ("equivalent smaller network", "reduction"),
    ("linear regions", "linear region"),
    ("dead channels", "dead channel"),
    ("NTK", "NTK"),
    ("effective rank", "effective rank"),
    ("stable rank", "stable rank"),
    ("largest stable", "learning rate"),
    ("alignment", "alignment"),
    ("bottleneck", "bottleneck"),
    ("exact rank", "exact"),
    ("account", "symmetry"),
    ("units", "always off"),
    ("kernel", "NTK"),
    ("rank by", "functional dimension"),
    ("fit", "fit"),
)


_PHRASES = (
    ("parameter directions", "parameter direction"),
    ("parameter direction", "parameter direction"),
    ("effective rank", "effective rank"),
    ("rank", "functional dimension"),
    ("units", "unit"),
    ("Gradient flow", "gradient flow"),
)


def anchor(term: str) -> str:
    """The place of a term's definition on the page."""
    return "term-" + re.sub(r"\W+", "-", term.lower())


def link_term(text: str, term: str) -> str:
    """The text as a link to the term's definition, which also shows when the link is pointed at
    or reached by key.
    """
    meaning = html.escape(f"{term}: {TERMS[term]}.")
    return f'<a class="term" href="#{anchor(term)}" data-tip="{meaning}">{html.escape(text)}</a>'


def row_name(name: str) -> str:
    """A table's row name as a link to what it means; each of several by itself."""
    return ", ".join(_of_row(part) for part in name.strip().split(", "))


def _of_row(name: str) -> str:
    if name.endswith((" always on", " always off")):
        return link_term(name, name[name.index("always") :])
    return next(
        (link_term(name, term) for start, term in _ROWS if name.startswith(start)),
        html.escape(name),
    )


def name_with_link(name: str) -> str:
    """A name as a link where it is a term, else as it is."""
    return link_term(name, name) if name in TERMS else html.escape(name)


def annotate(sentence: str) -> str:
    """A sentence with a link at the first place of each term in it."""
    meant, known = dict(_PHRASES), set[str]()
    parts = []
    for text in re.split(f"({'|'.join(meant)})", sentence):
        new = text in meant and text not in known
        parts.append(link_term(text, meant[text]) if new else mark_up(text))
        known |= {text}
    return "".join(parts)


def mark_up(text: str) -> str:
    """Text as HTML, what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def glossary(page: str) -> str:
    """The definitions of the terms that a page links to."""
    used = [term for term in TERMS if f'href="#{anchor(term)}"' in page]
    listed = "".join(
        f'<dt id="{anchor(term)}">{html.escape(term)}</dt><dd>{html.escape(TERMS[term])}.</dd>'
        for term in used
    )
    return f"<dl>{listed}</dl>"
