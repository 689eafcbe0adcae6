//! What machine this is: printed beside every figure, because figures without it mean nothing.

/// Keeps the calling thread on the core numbered `index` modulo the cores there are.
pub fn pin_to_core(index: usize) {
    tarn_fabric::local::pin_to_core(index);
}
