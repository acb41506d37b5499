//! The ledger on MySQL/MariaDB and PostgreSQL.
