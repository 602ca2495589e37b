"""What holds for all tests: MLX keeps its kernels where the engine does, here too, and compiles each of them once."""

from engine.kernel_cache import keep_kernels_private, usual_folder

keep_kernels_private(usual_folder())
