// A PJRT plugin that is another one with a single device: for torch_tpu's collectives, which want one device
// in a process, on XLA's plugin for the CPU, which shows several. PJRT_PLUGIN names the other.
#include <dlfcn.h>
#include <pjrt_c_api.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

constexpr std::string_view kDeviceCount = "cpu_device_count";

/// Ends the process, since the interface has no error for a plugin that is not there.
[[noreturn]] void fail(const char* why) {
  std::fprintf(stderr, "one_device_plugin: %s\n", why);
  std::abort();
}

const PJRT_Api& original() {
  static const PJRT_Api& api = []() -> const PJRT_Api& {
    const char* path = std::getenv("PJRT_PLUGIN");
    if (path == nullptr) fail("expected PJRT_PLUGIN to name a plugin");
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(dlerror());
    auto* get = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
    if (get == nullptr) fail(dlerror());
    return *get();
  }();
  return api;
}

PJRT_Error* create_client(PJRT_Client_Create_Args* arguments) {
  std::vector<PJRT_NamedValue> options(arguments->create_options,
                                       arguments->create_options + arguments->num_options);
  PJRT_NamedValue count{};
  count.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  count.name = kDeviceCount.data();
  count.name_size = kDeviceCount.size();
  count.type = PJRT_NamedValue_kInt64;
  count.int64_value = 1;
  count.value_size = 1;
  options.push_back(count);
  PJRT_Client_Create_Args with_count = *arguments;
  with_count.create_options = options.data();
  with_count.num_options = options.size();
  PJRT_Error* error = original().PJRT_Client_Create(&with_count);
  arguments->client = with_count.client;
  return error;
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api changed = original();
    changed.PJRT_Client_Create = create_client;
    return changed;
  }();
  return &api;
}
