//! The engine's ports on one machine: the embedded [`store`], encrypted by [`seal`], and the runner of
//! processes, [`process`]; both in a [`data_dir`].

pub mod data_dir;
pub mod process;
pub mod seal;
pub mod store;
