//! The files of the tree that are committed (or about to be), and reading them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file of the tree.
pub struct File {
    /// From the root, with `/`.
    pub path: String,
    /// What it holds.
    pub text: String,
}

/// The root of the workspace.
pub fn root() -> Result<PathBuf, String> {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("xtask"), PathBuf::from);
    let root = here.join("..");
    root.canonicalize().map_err(|e| format!("cannot find the workspace from {}: {e}", here.display()))
}

/// Every text file git knows or would add; without git, every file outside `target` and hidden folders.
pub fn read(root: &Path) -> Result<Vec<File>, String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output();
    let paths = match listed {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).split('\0').filter(|p| !p.is_empty()).map(str::to_owned).collect()
        }
        _ => walk(root)?,
    };
    // What is not UTF-8 is no text, and what was deleted but not yet committed is not there.
    let texts = paths
        .into_iter()
        .filter_map(|path| std::fs::read_to_string(root.join(&path)).ok().map(|text| File { path, text }));
    Ok(texts.collect())
}

fn walk(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if let Ok(relative) = path.strip_prefix(root) {
                found.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    Ok(found)
}

/// Beginnings of paths that belong to one machine: users' homes, and the folder this tree lies in.
pub fn machine_paths(root: &Path) -> Vec<String> {
    // Put together here so that this file does not name one.
    let mut paths: Vec<String> = ["root", "home", "Users"].iter().map(|name| format!("/{name}/")).collect();
    let homes = std::env::var("HOME").ok().map(PathBuf::from);
    for path in homes.into_iter().chain(root.parent().map(Path::to_owned)) {
        if path.components().count() > 1 {
            paths.push(format!("{}/", path.display()));
        }
    }
    paths
}
