use super::*;

#[test]
fn a_cursor_of_follows_is_taken_back_and_nothing_else_is() {
    let long = "x".repeat(128);
    for name in ["a", "\u{e9} b", "%2F", "zz\u{1f4a5}", &long] {
        let name = UserId::parse(name).expect("a name");
        let cursor = follows_cursor(&name);
        assert_eq!(follows_after(Some(&cursor)).expect("it was given"), Some(name));
        let other = format!("{}{}", &cursor[..1], cursor[1..].to_uppercase());
        assert!(other == cursor || follows_after(Some(&other)).is_err());
    }
    assert_eq!(follows_after(None).expect("no cursor"), None);
    let mut forged = follows_cursor(&UserId::parse("ann").expect("a name"));
    forged.replace_range(1..3, "62");
    for bad in ["", "f", "f6", "f61", "f6100", "g61", "o1ff", "f\u{e9}", "fzz", &forged] {
        assert_eq!(follows_after(Some(bad)).expect_err("it was not given").kind(), ErrorKind::BadCursor, "{bad}");
    }
}

#[test]
fn a_batch_has_bounds() {
    let user = |n: usize| UserId::parse(&format!("u{n}")).expect("a name");
    let unfollow = |n: usize| Command::Unfollow(user(n), user(n + 1));
    let delete = |n: usize| Command::Delete(PostId::parse(&format!("p{n}")).expect("a name"));
    let mut commands: Vec<Command> = (0..MAX_FEED_COMMANDS - MAX_FEED_POSTS).map(unfollow).collect();
    commands.extend((0..MAX_FEED_POSTS).map(delete));
    assert!(check_bounds(&commands).is_ok());
    commands[0] = delete(MAX_FEED_POSTS);
    assert_eq!(check_bounds(&commands).expect_err("one post too many").kind(), ErrorKind::Command);
    commands[0] = unfollow(0);
    commands.push(unfollow(0));
    assert_eq!(check_bounds(&commands).expect_err("one command too many").kind(), ErrorKind::Command);
    assert!(check_reads(MAX_FEED_READS).is_ok() && check_reads(MAX_FEED_READS + 1).is_err());
}
