use super::*;

/// Proxies and Clusters need to know commands and keys beforehand.
#[test]
fn commands_are_literal_and_keys_come_from_keys() {
    for (file, source) in ALL {
        for word in ["KEYS", "ARGV", "returns", "bound"] {
            let header: Vec<&str> = source.lines().take_while(|line| line.starts_with("--")).collect();
            assert!(header.iter().any(|line| line.contains(word)), "{file}: the header says nothing of {word}");
        }
        let names = key_names(source);
        for (at, _) in source.match_indices("redis.call(") {
            let call = &source[at + "redis.call(".len()..];
            let command = call.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
            let Some((command, rest)) = command else { panic!("{file}: a command that is not literal: {call:.40}") };
            if ["TIME", "PUBLISH", "INFO", "SCAN"].contains(&command) {
                continue;
            }
            let arguments: Vec<&str> =
                rest.split(')').next().unwrap_or_default().split(',').skip(1).map(str::trim).collect();
            // After its operation, every argument of BITOP is a key.
            let keys = if command == "BITOP" { &arguments[1..] } else { &arguments[..1] };
            for key in keys {
                let known = key.starts_with("KEYS[") || names.contains(key);
                assert!(known, "{file}: {command} on {key}, which is not from KEYS");
            }
        }
        assert!(!source.contains("pcall"), "{file}: an error must be seen");
    }
}

/// Names that the script gives to elements of KEYS: `local a, b = KEYS[1], KEYS[2]`.
fn key_names(source: &str) -> Vec<&str> {
    let locals = source.lines().filter_map(|line| line.trim().strip_prefix("local ")?.split_once(" = "));
    let keys = locals.filter(|(_, values)| values.split("], ").all(|value| value.starts_with("KEYS[")));
    keys.flat_map(|(names, _)| names.split(", ")).collect()
}

#[test]
fn the_lint_finds_what_it_is_for() {
    assert_eq!(key_names("  local a, b = KEYS[1], KEYS[p * 3 - 1]\nlocal c = ARGV[1]\n"), ["a", "b"]);
}
