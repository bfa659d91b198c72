//! What the README shows is what is run.

#[test]
fn the_first_example_of_the_readme_is_the_one_that_runs() {
    let example = include_str!("../examples/first.rs");
    let code = example.lines().skip_while(|line| line.starts_with("//!") || line.is_empty());
    let code: String = code.flat_map(|line| [line, "\n"]).collect();
    let readme = include_str!("../../../README.md");
    assert!(readme.contains(&format!("```rust\n{code}```\n")), "README.md has something else");
}
