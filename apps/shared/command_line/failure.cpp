#include "lockstep/apps/shared/command_line/failure.h"

#include <c10/util/Exception.h>

#include <new>
#include <system_error>

#include "lockstep/apps/shared/command_line/numbers_error.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/exit_code.h"
#include "lockstep/apps/shared/writable_folder.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/folder_lock.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/strategies/coordinator/cluster_coordinator.h"
#include "lockstep/training/callbacks/nan_guard.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {
namespace {

/// LibTorch appends the place in its sources that raised an error, and the library appends advice on changing
/// the code. Neither helps the user of this program.
std::string first_line(const std::string& message) {
  return message.substr(0, message.find('\n'));
}

Failure failure(ExitCode code, const std::string& message) {
  return {static_cast<int>(code), first_line(message)};
}

Failure out_of_memory(const std::string& detail) {
  return failure(ExitCode::kResources, "out of memory; a smaller batch or image size needs less" + detail);
}

/// Describes errors without a specific class.
Failure describe_other(const std::string& message) {
  // LibTorch's CPU allocator reports a lack of memory only in its message.
  const size_t allocator = message.find("DefaultCPUAllocator");
  if (allocator != std::string::npos) return out_of_memory(": " + message.substr(allocator));
  return {1, first_line(message)};
}

}  // namespace

Failure describe_failure(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& usage) {
    return failure(ExitCode::kUsage, usage.what());
  } catch (const ImageError& image) {
    return failure(ExitCode::kData,
                   std::string(image.what()) + "; --skip-bad leaves out images that cannot be read");
  } catch (const DataError& data) {
    return failure(ExitCode::kData, data.what());
  } catch (const CheckpointError& checkpoint) {
    return failure(ExitCode::kCheckpoint, checkpoint.what());
  } catch (const RunDirectoryError& directory) {
    return failure(ExitCode::kCheckpoint, directory.what());
  } catch (const FolderInUse& folder) {
    return failure(ExitCode::kCheckpoint, folder.what());
  } catch (const FolderError& folder) {
    return failure(ExitCode::kCheckpoint, folder.what());
  } catch (const NumbersError& numbers) {
    return failure(ExitCode::kNumbers, numbers.what());
  } catch (const NotFinite& loss) {
    return failure(ExitCode::kNumbers, loss.what());
  } catch (const InconsistentReplicas& drift) {
    return failure(ExitCode::kNumbers, drift.what());
  } catch (const ClusterError& cluster) {
    return failure(ExitCode::kPeer, cluster.what());
  } catch (const CollectiveAborted& aborted) {
    return failure(ExitCode::kPeer, aborted.what());
  } catch (const CollectiveMismatch& mismatch) {
    return failure(ExitCode::kPeer, mismatch.what());
  } catch (const ClosureCancelled& cancelled) {
    return failure(ExitCode::kPeer, cancelled.what());
  } catch (const BackendError& backend) {
    return failure(ExitCode::kPeer, backend.what());
  } catch (const OutOfMemory& memory) {
    return failure(ExitCode::kResources, memory.what());
  } catch (const DeviceFailure& device) {
    return failure(ExitCode::kResources, device.what());
  } catch (const std::bad_alloc&) {
    return out_of_memory("");
  } catch (const std::system_error& system) {
    const ExitCode code = is_refused_for_good(system.code()) ? ExitCode::kCheckpoint : ExitCode::kResources;
    return failure(code, std::string("the system refused: ") + system.what());
  } catch (const c10::OutOfMemoryError& memory) {
    return out_of_memory(": " + memory.msg());
  } catch (const c10::AcceleratorError& device) {
    constexpr int kCudaOutOfMemory = 2;
    if (device.get_error_code() == kCudaOutOfMemory) return out_of_memory(": " + first_line(device.msg()));
    return failure(ExitCode::kResources, "a device failed: " + device.msg());
  } catch (const c10::Error& torch_error) {
    return describe_other(torch_error.msg());
  } catch (const std::invalid_argument& argument) {
    return failure(ExitCode::kUsage, argument.what());
  } catch (const std::exception& other) {
    return describe_other(other.what());
  }
}

Failure describe_failure(const std::exception_ptr& error, const ClusterResolver* cluster) {
  Failure found = describe_failure(error);
  const bool names_workers = found.exit_code == static_cast<int>(ExitCode::kPeer);
  const bool is_one_of_several =
      cluster != nullptr && cluster->world_size() > 1 && cluster->task_type() != "evaluator";
  if (is_one_of_several && !names_workers)
    found.message = "worker " + std::to_string(cluster->rank()) + ": " + found.message;
  return found;
}

}  // namespace lockstep::apps
