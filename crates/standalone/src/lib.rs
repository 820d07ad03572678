//! The engine's ports on one machine: the embedded [`store`], encrypted by [`seal`], and the runner of
//! processes, [`process`].

pub mod process;
pub mod seal;
pub mod store;
