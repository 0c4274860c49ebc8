#include "lockstep/training/parameter_server/serve_parameters.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/parameter_server/service/parameter_service.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/error_line.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/cluster/internal/job_secret.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"
#include "lockstep/runtime/rpc/rpc_server.h"
#include "lockstep/training/parameter_server/internal/server_checkpoint.h"

namespace lockstep {
namespace {

using std::chrono::steady_clock;

constexpr const char* kServeParameters = "[serve_parameters] ";

class ServingEnd {
 public:
  void come() {
    MutexLock lock(mutex_);
    has_come_ = true;
    changed_.notify_all();
  }
  /// Returns whether the end has come by `deadline`.
  bool wait_until(steady_clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (!has_come_)
      if (!changed_.wait_until(mutex_, deadline)) break;
    return has_come_;
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  bool has_come_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

std::shared_ptr<const ClusterResolver> resolver_of_server(std::shared_ptr<const ClusterResolver> resolver) {
  if (!resolver) resolver = resolve_cluster(process_environment());
  if (resolver && resolver->task_type() == "ps") return resolver;
  throw InvalidArgument(c10::str(
      kServeParameters, "expected a ps task, but got ",
      resolver ? c10::str(resolver->task_type(), " ", resolver->task_id(), " in ", resolver->source())
               : "no cluster, such as by TF_CONFIG"));
}

std::string grouped_digits(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto place = static_cast<int>(digits.size()) - 3; place > 0; place -= 3)
    digits.insert(static_cast<size_t>(place), 1, ',');
  return digits;
}

/// Returns a line about a table that grows, such as "ps 0 held 120,000 rows of emb/part_0, 11,000 of them in
/// memory: at most 11,900,000 of 12,582,912 bytes; 110,000,000 bytes on disk".
std::string extent_text(int task, const ParameterShard& shard) {
  const auto extent = shard.extent();
  const int64_t limit = shard.growth()->max_bytes;
  return c10::str("ps ", task, " held ", grouped_digits(extent.rows), " rows of ", shard.name(), ", ",
                  grouped_digits(extent.rows_in_memory), " of them in memory: at most ",
                  grouped_digits(extent.most_bytes), limit > 0 ? " of " + grouped_digits(limit) : "",
                  " bytes; ", grouped_digits(extent.disk_bytes), " bytes on disk");
}

/// Returns once the job has ended or the server may leave it.
void wait_for_end(ServingEnd& end, const RpcServer& server, std::chrono::milliseconds timeout,
                  const std::function<bool()>& is_leaving) {
  constexpr auto kInterval = std::chrono::milliseconds(200);
  auto last_connected = steady_clock::now();
  while (!end.wait_until(steady_clock::now() + kInterval)) {
    const auto now = steady_clock::now();
    if (server.num_connections() > 0) {
      last_connected = now;
    } else if (is_leaving && is_leaving()) {
      return;
    }
    if (now - last_connected > timeout)
      throw ClusterError(c10::str(kServeParameters, "no chief and no worker has been connected for ",
                                  static_cast<double>(timeout.count()) / 1e3,
                                  " s: the job has ended without telling"));
  }
}

}  // namespace

void serve_parameters(std::shared_ptr<const ClusterResolver> given, const ServeParametersOptions& options,
                      const ClusterOptions& cluster) {
  const auto resolver = resolver_of_server(std::move(given));
  const std::string token = job_secret(*resolver, cluster).token;
  const auto spec = resolver->cluster_spec();
  const auto servers = spec.task_indices("ps");
  const int task = resolver->task_id();
  const auto log = [&](const std::string& line) {
    options.on_message ? options.on_message(line) : write_error_line(line);
  };
  std::shared_ptr<RowDisk> disk;
  if (!options.table_disk.empty())
    disk = std::make_shared<RowDisk>(c10::str(options.table_disk, "/ps-", task));
  std::shared_ptr<ServerCheckpoint> checkpoint;
  if (!options.backup_dir.empty())
    checkpoint = std::make_shared<ServerCheckpoint>(ServerCheckpointOptions{
        .folder = options.backup_dir,
        .server = static_cast<int>(std::find(servers.begin(), servers.end(), task) - servers.begin()),
        .num_servers = static_cast<int>(servers.size()),
        .on_message = log,
        .disk = disk});

  ServingEnd end;
  ParameterService service(
      checkpoint, [&end] { end.come(); }, disk);
  if (checkpoint)
    for (auto& shard : checkpoint->take_own()) service.restore(std::move(shard));
  const auto& address = spec.task_address("ps", task);
  RpcServer server({.host = cluster.address.empty() ? address.host : cluster.address,
                    .port = address.port,
                    .token = token,
                    .task = c10::str("ps ", task),
                    .listening_socket = cluster.listening_socket},
                   [&service](const RpcMessage& request) { return service.handle(request); });
  log(c10::str("ps ", task, " serves at ", address.host, ":", server.port(),
               checkpoint && !checkpoint->source().empty() ? c10::str(", from ", checkpoint->source()) : ""));
  wait_for_end(end, server, cluster.join_timeout, options.is_leaving);
  for (const auto& name : service.shard_names())
    if (const auto shard = service.shard(name); shard->growth()) log(extent_text(task, *shard));
}

}  // namespace lockstep
