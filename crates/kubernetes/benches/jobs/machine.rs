//! What the whole machine has done: what is measured here is mostly done by others, so it counts where nobody else works.

/// CPU time of all processes since the machine began, in seconds.
pub(crate) fn busy() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let numbers: Vec<f64> = text
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .skip(1)
        .map(|it| it.parse().unwrap())
        .collect();
    // user, nice, system; idle, iowait; irq, softirq. A tick is a hundredth of a second.
    (numbers[0] + numbers[1] + numbers[2] + numbers[5] + numbers[6]) / 100.0
}
