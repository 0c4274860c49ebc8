#include "lockstep/strategies/communication/internal/worker_ops_choice.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "lockstep/runtime/backends/internal/nccl_backend.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/error_text.h"
#include "lockstep/strategies/communication/internal/exchange_algorithm.h"
#include "lockstep/strategies/communication/internal/worker_all_reduce.h"
#include "lockstep/strategies/communication/internal/worker_backend_all_reduce.h"

namespace lockstep {
namespace {

constexpr char kNo = '!';  // marks a reason why NCCL cannot serve a worker

/// Returns why NCCL cannot serve this worker; empty if it can.
std::string own_refusal_of_nccl(const Devices& devices) {
  try {
    NcclAllReduce().check_devices(devices);
    return "";
  } catch (const InvalidArgument&) {
    return error_line(std::current_exception());
  }
}

/// Returns the ids of this worker's GPUs for NCCL to connect, or kNo and the reason why it cannot.
std::string gpus_for_nccl(const Devices& devices) {
  const std::string refusal = own_refusal_of_nccl(devices);
  if (!refusal.empty()) return kNo + refusal;
  std::string ids;
  for (const auto& device : devices) ids += unique_id_of_gpu(device) + ' ';
  return ids;
}

/// Returns why NCCL cannot connect the replicas of all workers; empty if it can.
std::string refusal_of_nccl(WorkerGroup& workers, const Devices& devices) {
  const auto texts = workers.gather(gpus_for_nccl(devices));
  std::set<std::string> seen;
  for (size_t worker = 0; worker < texts.size(); ++worker) {
    const auto& name = workers.name_of(static_cast<int>(worker));
    if (texts[worker].starts_with(kNo)) return c10::str(name, ": ", texts[worker].substr(1));
    std::istringstream ids(texts[worker]);
    for (std::string id; ids >> id;) {
      if (!seen.insert(id).second) return name + " shares a GPU with another worker";
    }
  }
  return "";
}

/// Returns the backend asked for by name or by object; null if none was, or one on the host.
std::shared_ptr<const BackendAllReduce> asked_backend(const CommunicationOptions& communication,
                                                      const std::shared_ptr<CrossDeviceOps>& given) {
  if (communication.implementation == CommunicationImplementation::kNccl)
    return std::make_shared<NcclAllReduce>();
  return std::dynamic_pointer_cast<const BackendAllReduce>(given);
}

bool rounds_only(const std::shared_ptr<GradientCompression>& compression) {
  return !compression || compression->wire_dtype().has_value();
}

}  // namespace

void check_over_workers(const std::string& strategy, const Devices& devices,
                        const CommunicationOptions& communication,
                        const std::shared_ptr<CrossDeviceOps>& given) {
  if (given && communication.implementation != CommunicationImplementation::kAuto) {
    throw InvalidArgument(c10::str("[", strategy,
                                   "] expected a cross-device op or a communication implementation, but got "
                                   "both: ",
                                   given->name(), " and ", communication_name(communication.implementation)));
  }
  if (given && parse_exchange_algorithm(communication.exchange_algorithm)) {
    throw InvalidArgument(c10::str(
        "[", strategy, "] expected a cross-device op or an exchange algorithm, but got both: ", given->name(),
        " and ", communication.exchange_algorithm));
  }
  const auto backend = asked_backend(communication, given);
  if (given && !backend) {
    throw InvalidArgument(
        c10::str("[", strategy, "] expected no cross-device op with several workers, but got ", given->name(),
                 ", which knows one process only; the communication options choose"));
  }
  if (!backend) {
    // Prepares NCCL now if it may be chosen, because joining starts threads.
    if (own_refusal_of_nccl(devices).empty()) NcclAllReduce().prepare();
    return;
  }
  backend->check_devices(devices);
  backend->prepare();
  backend->check_compression(communication.gradient_compression);
}

WorkerOpsChoice choose_over_workers(const std::shared_ptr<WorkerGroup>& workers, const Devices& devices,
                                    const CommunicationOptions& communication,
                                    const std::shared_ptr<CrossDeviceOps>& given) {
  const auto& compression = communication.gradient_compression;
  const auto over_workers = [&](std::shared_ptr<const BackendAllReduce> backend, const char* reason) {
    return WorkerOpsChoice{std::make_shared<WorkerBackendAllReduce>(std::move(backend), workers), reason};
  };
  const auto on_host = [&](const std::string& reason) {
    WorkerOpsChoice choice{std::make_shared<WorkerAllReduce>(workers), reason};
    if (workers->transport() == WorkerTransport::kExchange) {
      const auto& policy = workers->exchange_policy();
      const int num_workers = workers->layout()->num_workers();
      choice.bucket_bytes = choose_bucket_bytes(num_workers, policy);
      choice.reason += "; " + describe(policy, num_workers);
    }
    return choice;
  };
  if (auto backend = asked_backend(communication, given))
    return over_workers(std::move(backend), "as asked for");
  if (communication.implementation == CommunicationImplementation::kRing ||
      communication.implementation == CommunicationImplementation::kExchange ||
      parse_exchange_algorithm(communication.exchange_algorithm))
    return on_host("as asked for");
  if (!rounds_only(compression))
    return on_host(c10::str("the gradient compression ", compression->name(), " works on the host"));
  const auto refusal = refusal_of_nccl(*workers, devices);
  if (!refusal.empty()) {
    const bool has_gpu = std::any_of(devices.begin(), devices.end(),
                                     [](const LogicalDevice& device) { return device.is_cuda(); });
    return on_host("replicas are in several processes" + (has_gpu ? "; not NcclAllReduce: " + refusal : ""));
  }
  return over_workers(std::make_shared<NcclAllReduce>(), "every replica has a GPU of its own");
}

}  // namespace lockstep
