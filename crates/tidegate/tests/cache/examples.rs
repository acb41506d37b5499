//! The examples, as they stand.

#[path = "../../examples/cache_a_page.rs"]
mod cache_a_page;
#[path = "../../examples/cache_a_row.rs"]
mod cache_a_row;
#[path = "../../examples/cache_write.rs"]
mod cache_write;

#[test]
fn a_page_of_many_entries() {
    cache_a_page::main().unwrap();
}

#[test]
fn a_row_of_an_sql_table() {
    cache_a_row::main().unwrap();
}

#[test]
fn a_write_that_invalidates() {
    cache_write::main().unwrap();
}
