// The test device's autocast: LibTorch's lists, as for GPUs.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace lockstep::test_device {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOCKSTEP_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOCKSTEP_LOWER_PRECISION)
#undef LOCKSTEP_LOWER_PRECISION
#define LOCKSTEP_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(LOCKSTEP_FP32)
#undef LOCKSTEP_FP32
#define LOCKSTEP_FP32_IF_NO_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(LOCKSTEP_FP32_IF_NO_DTYPE)
#undef LOCKSTEP_FP32_IF_NO_DTYPE
#define LOCKSTEP_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(LOCKSTEP_PROMOTE)
#undef LOCKSTEP_PROMOTE
}

}  // namespace lockstep::test_device
