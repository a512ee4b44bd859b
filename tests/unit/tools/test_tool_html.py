from app.tools.builtin import webfetch


def test_markdown_keeps_the_structure() -> None:
    page = "<h2>Code</h2><pre><code>a = 1\nb = 2</code></pre><table><tr><th>h</th></tr><tr><td>v</td></tr></table><ol><li>x</ol>"
    assert webfetch.to_markdown(page) == "## Code\n\n```\na = 1\nb = 2\n```\n\n| h |\n| --- |\n| v |\n\n1. x"


def test_markdown_without_scripts_styles_comments_and_head() -> None:
    page = "<head><title>t</title></head><!-- c --><script>s()</script><style>p{}</style><noscript>n</noscript><p>kept</p>"
    assert webfetch.to_markdown(page) == "kept"


def test_text_has_one_line_a_block() -> None:
    page = "<div>a  b<br>c</div><p>d <i>e</i>f</p><script>var x = '<p>no</p>'</script><table><tr><td>g<td>h</table>"
    assert webfetch.to_text(page).split() == ["a", "b", "c", "d", "ef", "g", "h"]
    assert "a b\nc" in webfetch.to_text(page)


def test_text_resolves_entities_and_tolerates_broken_markup() -> None:
    assert webfetch.to_text("<p>1 &lt; 2 &amp; 3 &eacute;</p></p></div><b>x") == "1 < 2 & 3 é\nx"


def test_text_outside_a_nested_hidden_element_is_found_again() -> None:
    assert webfetch.to_text("<svg>a<svg>b</svg>c</svg>d") == "d"


def test_depth_does_not_matter() -> None:
    deep = "<div>" * 20_000 + "x" + "</div>" * 20_000
    assert webfetch.to_text(deep) == "x"
    assert webfetch.to_markdown(deep) == "x"
