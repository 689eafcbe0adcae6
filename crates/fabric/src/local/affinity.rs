//! Keeps a thread on one core, for measurements with a stated number of cores.

/// Keeps the calling thread on the core numbered `index` modulo the cores that the process may
/// use. Where the operating system refuses, the thread stays where it is.
pub fn pin_to_core(index: usize) {
    // SAFETY: a zeroed `cpu_set_t` is an empty set; both calls only read or fill it.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        if libc::sched_getaffinity(0, size, &mut allowed) != 0 {
            return;
        }
        let cores: Vec<usize> = (0..libc::CPU_SETSIZE as usize)
            .filter(|&core| libc::CPU_ISSET(core, &allowed))
            .collect();
        if cores.is_empty() {
            return;
        }
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cores[index % cores.len()], &mut one);
        libc::sched_setaffinity(0, size, &one);
    }
}
