//! The README's program is one: as a reader copies it, it runs.
#![allow(clippy::unwrap_used, reason = "tests")]

mod program {
    include!("../examples/first_sale/program.rs");

    pub fn run() {
        main().unwrap();
    }
}

/// The first program of a text, without its comments, which are translated.
fn program_of(text: &str) -> Vec<&str> {
    let code = text.lines().skip_while(|line| !line.starts_with("use ")).take_while(|line| *line != "```");
    code.map(|line| line.split(" //").next().unwrap_or_default()).collect()
}

/// Alone in this binary: it changes the working directory.
#[test]
fn the_program_in_the_readme_runs_as_it_stands() {
    let code = program_of(include_str!("../examples/first_sale/program.rs"));
    assert!(code.len() > 20, "{code:?}");
    assert_eq!(program_of(include_str!("../../../README.md")), code);
    assert_eq!(program_of(include_str!("../../../README.zh-CN.md")), code);
    let folder = tempfile::tempdir().unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    program::run();
    assert!(folder.path().join("ledger.db").exists());
}
