#include "lockstep/apps/shared/device_plugin.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
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
bool has_torch_tpu = false;
void load_torch_tpu() {
  has_torch_tpu = true;  // even if it throws, its threads may be there
  static const torch_tpu::TorchTpu tpu;
}
#else
constexpr bool has_torch_tpu = false;
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

int exit_code_with_device_plugin(int code) {
  if (!has_torch_tpu) return code;
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace lockstep::apps
