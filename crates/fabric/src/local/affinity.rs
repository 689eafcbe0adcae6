//! Pins a thread to one core, for measurements that state their number of cores.

/// Pins the calling thread to one of the cores that the process may use. The number of the core is `index` modulo the
/// number of these cores. If the operating system refuses, the thread is not pinned.
pub fn pin_to_core(index: usize) {
    // SAFETY: a zeroed `cpu_set_t` is an empty set. Both calls only read or fill the set.
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
