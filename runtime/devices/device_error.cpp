#include "lockstep/runtime/devices/device_error.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <new>
#include <optional>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/device_streams.h"
#include "lockstep/runtime/devices/internal/device_traits.h"

namespace lockstep {
namespace {

/// The text between the two, or nothing if one of them is missing.
std::optional<std::string> text_between(const std::string& text, const std::string& before,
                                        const std::string& after) {
  const size_t begin = text.find(before);
  if (begin == std::string::npos) return std::nullopt;
  const size_t end = text.find(after, begin + before.size());
  if (end == std::string::npos) return std::nullopt;
  return text.substr(begin + before.size(), end - begin - before.size());
}

std::string free_memory_of_host() {
  const auto bytes = static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return c10::str(bytes, " bytes");
}

/// Whose memory ran out.
enum class Memory { kDevice, kHost, kEither };

/// The allocators report amounts only in words: CUDA's "Tried to allocate 2.00 GiB. GPU 0 has a total
/// capacity of 79.10 GiB of which 1.50 GiB is free.", the CPU's "you tried to allocate 4096 bytes."
[[noreturn]] void throw_out_of_memory(const ErrorSource& source, Memory memory, const std::string& detail) {
  const bool on_accelerator = source.device.is_accelerator();
  const bool is_hosts = memory == Memory::kHost || !on_accelerator;
  auto wanted = text_between(detail, "ried to allocate ", ". ");
  auto available = text_between(detail, " of which ", " is free");
  if (!available && is_hosts) available = free_memory_of_host();
  std::string text =
      c10::str("[", source.who, "] replica ", source.replica, " on ", source.device,
               is_hosts && on_accelerator ? ": the host is out of memory" : " is out of memory");
  if (wanted) text += ": it wanted " + *wanted;
  if (available) text += c10::str(wanted ? ", " : ": ", *available, " were free");
  text += "; a smaller batch needs less";
  if (memory == Memory::kDevice && on_accelerator)
    text += ", and so do fewer replicas on this " + device_type_noun(source.device.type);
  if (memory == Memory::kEither) text += " (or the host has no memory to pin left)";
  throw OutOfMemory(text);
}

[[noreturn]] void throw_device_failure(const ErrorSource& source, const std::string& detail) {
  throw DeviceFailure(c10::str("[", source.who, "] replica ", source.replica, " on ", source.device, ": ",
                               detail, "\nWork given to the device before may have caused it."));
}

/// A failed device reports its failure whenever it is asked.
bool has_failed(const LogicalDevice& device) {
  try {
    if (device.is_cpu() || !device_traits(device.type).has_stream_queries) return false;
    current_stream(device.torch_device()).query();
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

/// cudaErrorMemoryAllocation: memory outside the caching allocator, such as pinned memory, a graph's or a
/// context's.
constexpr int kCudaOutOfMemory = 2;

bool has_any_of(const std::string& text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

/// Handles errors that LibTorch has no class for. Returns if the error is not a device's.
void throw_if_from_device(const ErrorSource& source, const std::string& message) {
  if (has_any_of(message, {"DefaultCPUAllocator"})) throw_out_of_memory(source, Memory::kHost, message);
  if (has_any_of(message, {"CUBLAS_STATUS_ALLOC_FAILED", "INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"}))
    throw_out_of_memory(source, Memory::kDevice, message);
  // cuDNN's status for either kind of memory until its version 9.
  if (has_any_of(message, {"CUDNN_STATUS_ALLOC_FAILED"}))
    throw_out_of_memory(source, Memory::kEither, message);
  if (has_any_of(message, {"INTERNAL_ERROR_HOST_ALLOCATION_FAILED"}))
    throw_out_of_memory(source, Memory::kHost, message);
  // Their other errors, such as CUBLAS_STATUS_INVALID_VALUE, are complaints about the arguments.
  if (has_any_of(message, {"CUBLAS_STATUS_NOT_INITIALIZED", "CUBLAS_STATUS_MAPPING_ERROR",
                           "CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_INTERNAL_ERROR",
                           "CUDNN_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_EXECUTION_FAILED",
                           "CUDNN_STATUS_INTERNAL_ERROR"}))
    throw_device_failure(source, message);
}

}  // namespace

void rethrow_from_device(const std::exception_ptr& error, const ErrorSource& source) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError& memory) {
    throw_out_of_memory(source, Memory::kDevice, memory.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    throw_out_of_memory(source, Memory::kHost, "");
  } catch (const c10::AcceleratorError& failure) {
    if (source.device.is_cuda() && failure.get_error_code() == kCudaOutOfMemory)
      throw_out_of_memory(source, Memory::kEither, "");
    throw_device_failure(source, failure.what_without_backtrace());
  } catch (const c10::Error& other) {
    throw_if_from_device(source, other.what_without_backtrace());
    // Plugins need not have LibTorch's class for failures of devices.
    if (!source.device.is_cuda() && has_failed(source.device))
      throw_device_failure(source, other.what_without_backtrace());
    throw;
  }
}

void rethrow_from_devices(const std::exception_ptr& error, const std::string& who,
                          const std::vector<LogicalDevice>& devices, int first_replica) {
  auto named = devices.begin();
  try {
    std::rethrow_exception(error);
  } catch (const c10::AcceleratorError&) {
    named = std::find_if(devices.begin(), devices.end(), &has_failed);
    if (named == devices.end()) named = devices.begin();
  } catch (...) {
    // The error does not say which device failed.
  }
  const int local = static_cast<int>(named - devices.begin());
  rethrow_from_device(error, {who, first_replica + local, *named});
}

}  // namespace lockstep
