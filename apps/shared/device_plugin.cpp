#include "lockstep/apps/shared/device_plugin.h"

#include <dlfcn.h>

#include <string>

#include "lockstep/apps/shared/command_line/usage_error.h"
#ifdef LOCKSTEP_WITH_TORCH_TPU
#include "lockstep/torch_tpu/torch_tpu.h"
#endif

namespace lockstep::apps {
namespace {

constexpr const char* kVariable = "LOCKSTEP_DEVICE_PLUGIN";

#ifdef LOCKSTEP_WITH_TORCH_TPU
bool has_tpu() {
  return torch_tpu::num_tpu_chips() > 0;
}
void load_torch_tpu() {
  static const torch_tpu::TorchTpu tpu;
}
#else
bool has_tpu() {
  return false;
}
void load_torch_tpu() {
  throw UsageError(std::string(kVariable) +
                   "=torch_tpu: this build of Lockstep does without it (LOCKSTEP_TORCH_TPU=OFF)");
}
#endif

}  // namespace

void load_device_plugin(const Environment& environment) {
  const std::string plugin = environment(kVariable).value_or(has_tpu() ? "torch_tpu" : "");
  if (plugin.empty() || plugin == "none") return;
  if (plugin == "torch_tpu") return load_torch_tpu();
  // Operators of the library stay registered, so it is never closed.
  if (dlopen(plugin.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe): no other thread loads libraries
  throw UsageError(std::string(kVariable) + "=" + plugin +
                   ": cannot load the library: " + (why != nullptr ? why : ""));
}

}  // namespace lockstep::apps
