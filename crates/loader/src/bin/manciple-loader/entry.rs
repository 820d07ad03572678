//! The entry of the loader and its system calls: all that needs `unsafe`, because there is no libc below, and the
//! kernel speaks in pointers.
#![allow(unsafe_code, reason = "see above; each says why it holds")]

use core::arch::asm;
use core::ffi::{CStr, c_char};

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::report::report;
use crate::unpack::{Failure, unpack};

/// The arguments and variables that the kernel gave, to be handed on: lists of strings that end with a null pointer.
struct Given {
    arguments: *const *const c_char,
    variables: *const *const c_char,
}

/// Unpacks and becomes the program, or returns why not.
fn load(given: &Given) -> Failure {
    let Some(target) = variable(given, loader::TARGET_VARIABLE) else {
        return Failure { what: "MANCIPLE_AGENT does not say where the agent goes", errno: None };
    };
    match unpack(target) {
        Ok(()) => Failure::of("the agent cannot be executed")(execute(target, given)),
        Err(failure) => failure,
    }
}

fn variable<'a>(given: &'a Given, name: &str) -> Option<&'a CStr> {
    let mut at = given.variables;
    loop {
        // SAFETY: the list ends with a null pointer, which is not passed.
        let variable = unsafe { *at };
        if variable.is_null() {
            return None;
        }
        // SAFETY: as the kernel made it, each is a string with its zero, and stays as long as we are.
        let variable: &'a CStr = unsafe { CStr::from_ptr(variable) };
        let value = variable.to_bytes_with_nul().strip_prefix(name.as_bytes());
        if let Some(value) = value.and_then(|value| value.strip_prefix(b"=")) {
            return CStr::from_bytes_with_nul(value).ok();
        }
        // SAFETY: this was not the last.
        at = unsafe { at.add(1) };
    }
}

/// Becomes the program; returns only if that fails.
fn execute(program: &CStr, given: &Given) -> Errno {
    #[cfg(target_arch = "x86_64")]
    const EXECVE: usize = 59;
    #[cfg(target_arch = "aarch64")]
    const EXECVE: usize = 221;
    let Given { arguments, variables } = given;
    let pointers = [program.as_ptr() as usize, *arguments as usize, *variables as usize];
    // SAFETY: execve(2) reads a path and two lists, all of them whole; it writes nothing of ours.
    let result = unsafe { system_call(EXECVE, pointers) };
    Errno::from_raw_os_error(i32::try_from(-result).unwrap_or(0))
}

/// # Safety
/// As the system call asks.
unsafe fn system_call(number: usize, [a, b, c]: [usize; 3]) -> isize {
    let result: isize;
    // SAFETY: by the convention of the architecture; the kernel keeps all other registers.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    // SAFETY: the same.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b, in("x2") c,
            options(nostack));
    }
    result
}

/// The entry of a build with the standard library, for tests and for builds of the whole workspace.
#[cfg(not(bare))]
pub(crate) fn hosted() -> ! {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStringExt;

    let list = |strings: Vec<Vec<u8>>| -> Vec<CString> {
        strings.into_iter().filter_map(|bytes| CString::new(bytes).ok()).collect()
    };
    let ended = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|it| it.as_ptr()).chain([core::ptr::null()]).collect()
    };
    let arguments = list(std::env::args_os().map(OsStringExt::into_vec).collect());
    let variables = std::env::vars_os()
        .map(|(name, value)| [name.into_vec(), b"=".to_vec(), value.into_vec()].concat());
    let variables = list(variables.collect());
    let (arguments, variables) = (ended(&arguments), ended(&variables));
    let given = Given { arguments: arguments.as_ptr(), variables: variables.as_ptr() };
    report(load(&given), stderr());
    std::process::exit(2);
}

fn stderr() -> BorrowedFd<'static> {
    // SAFETY: it is never closed here; if we were started without one, writes to it fail.
    unsafe { BorrowedFd::borrow_raw(2) }
}

/// The entry of a build without the standard library and libc.
#[cfg(bare)]
mod bare {
    use core::arch::naked_asm;
    use core::ptr::{read_volatile, write_volatile};

    use super::*;

    /// The first instructions: where the kernel left the arguments is known only before there is a stack.
    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn _start() -> ! {
        #[cfg(target_arch = "x86_64")]
        naked_asm!("xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {}", "ud2", sym begin);
        #[cfg(target_arch = "aarch64")]
        naked_asm!("mov x29, 0", "mov x30, 0", "mov x0, sp", "bl {}", "brk 1", sym begin);
    }

    /// # Safety
    /// `stack` is as the kernel made it: the number of arguments, they, null, the variables, null.
    unsafe extern "C" fn begin(stack: *const usize) -> ! {
        // SAFETY: by the above.
        let given = unsafe {
            let count = *stack;
            let arguments = stack.add(1).cast::<*const c_char>();
            Given { arguments, variables: arguments.add(count + 1) }
        };
        report(load(&given), stderr());
        end()
    }

    fn end() -> ! {
        #[cfg(target_arch = "x86_64")]
        const EXIT_GROUP: usize = 231;
        #[cfg(target_arch = "aarch64")]
        const EXIT_GROUP: usize = 94;
        loop {
            // SAFETY: it takes a number, and does not return.
            unsafe { system_call(EXIT_GROUP, [2, 0, 0]) };
        }
    }

    #[panic_handler]
    fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
        end()
    }

    // What the compiler calls and libc has. Volatile, or the compiler would see what they do, and have them
    // call themselves.

    /// # Safety
    /// As in C.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
        for at in 0..count {
            // SAFETY: by the caller, both have so many bytes.
            unsafe { write_volatile(to.add(at), read_volatile(from.add(at))) };
        }
        to
    }

    /// # Safety
    /// As in C.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
        if (to as usize) <= (from as usize) {
            // SAFETY: by the caller; each byte is read before it is written over.
            return unsafe { memcpy(to, from, count) };
        }
        for at in (0..count).rev() {
            // SAFETY: the same, from the end.
            unsafe { write_volatile(to.add(at), read_volatile(from.add(at))) };
        }
        to
    }

    /// # Safety
    /// As in C.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, value: i32, count: usize) -> *mut u8 {
        for at in 0..count {
            // SAFETY: by the caller, it has so many bytes.
            unsafe { write_volatile(to.add(at), value as u8) };
        }
        to
    }

    /// # Safety
    /// As in C.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
        for at in 0..count {
            // SAFETY: by the caller, both have so many bytes.
            let pair = unsafe { (read_volatile(one.add(at)), read_volatile(other.add(at))) };
            if pair.0 != pair.1 {
                return i32::from(pair.0) - i32::from(pair.1);
            }
        }
        0
    }

    /// # Safety
    /// As in C.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
        // SAFETY: the same.
        unsafe { memcmp(one, other, count) }
    }
    /// # Safety
    /// As in C.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn strlen(text: *const c_char) -> usize {
        let mut length = 0;
        // SAFETY: by the caller, a zero comes.
        while unsafe { read_volatile(text.add(length)) } != 0 {
            length += 1;
        }
        length
    }
}
