#include "lockstep/benchmarks/scaling/exchange_loop.h"

#include <sys/resource.h>

#include <chrono>

#include "lockstep/measurement/seconds_since.h"
#include "lockstep/runtime/cluster/internal/job_secret.h"
#include "lockstep/runtime/cluster/internal/master_address.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/communication/internal/exchange_algorithm.h"
#include "lockstep/strategies/communication/internal/worker_all_reduce.h"

namespace lockstep::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::minutes kTimeout{5};

/// Returns the CPU time of all threads of this process.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

torch::Tensor gradients_of(int64_t bytes) {
  return torch::zeros({bytes / static_cast<int64_t>(sizeof(float))});
}

std::shared_ptr<WorkerGroup> join(const ClusterResolver& resolver, const ClusterOptions& cluster,
                                  const ExchangeLoop::Options& options) {
  const auto secret = job_secret(resolver, cluster);
  auto master = open_master(resolver, cluster);
  return WorkerGroup::join({.rank = resolver.rank(),
                            .size = resolver.world_size(),
                            .master_host = master.address.host,
                            .master_port = master.address.port,
                            .listening_socket = master.socket,
                            .token = secret.token,
                            .grant = secret.grant,
                            .join_timeout = cluster.join_timeout,
                            .timeout = kTimeout,
                            .uses_shared_memory = !options.uses_tcp,
                            .all_reduce_algorithm = parse_exchange_algorithm(options.algorithm)});
}

}  // namespace

class ExchangeLoop::Channel {
 public:
  Channel(const ClusterResolver& resolver, const ClusterOptions& cluster, const Options& options)
      : compression_(make_gradient_compression(options.compression)),
        workers_(join(resolver, cluster, options)),
        ops_(workers_),
        group_(ops_.make_gradient_channel(logical_cpus(1), kTimeout, compression_)) {
    group_->enter();
  }

  void sum(const torch::Tensor& gradients) const {
    std::vector<at::Tensor> bucket{gradients};
    group_->backend(0)->allreduce(bucket)->wait();
  }
  GradientCompression* compression() const { return compression_.get(); }

 private:
  std::shared_ptr<GradientCompression> compression_;
  std::shared_ptr<WorkerGroup> workers_;
  WorkerAllReduce ops_;
  std::unique_ptr<CollectiveChannel> group_;
};

ExchangeLoop::ExchangeLoop(const ClusterResolver& resolver, const ClusterOptions& cluster,
                           const Options& options)
    : channel_(std::make_unique<Channel>(resolver, cluster, options)) {}

ExchangeLoop::~ExchangeLoop() = default;

ExchangeSample ExchangeLoop::run(int64_t bytes, int repetitions) {
  const auto gradients = gradients_of(bytes);
  channel_->sum(gradients);  // touches the memory and makes the workers begin together
  const double cpu_before = cpu_seconds();
  const auto begin = Clock::now();
  for (int i = 0; i < repetitions; ++i) channel_->sum(gradients);
  return {static_cast<double>(bytes), measurement::seconds_since(begin) / repetitions,
          (cpu_seconds() - cpu_before) / repetitions};
}

double ExchangeLoop::conversion_seconds(int64_t bytes, int repetitions) {
  if (channel_->compression() == nullptr) return 0;
  const IntraOpThreadsGuard one(1);  // the channel's thread uses one too
  auto gradients = gradients_of(bytes);
  const auto convert = [&] {
    channel_->compression()->decompress(channel_->compression()->compress(gradients), gradients);
  };
  convert();
  const auto begin = Clock::now();
  for (int i = 0; i < repetitions; ++i) convert();
  return measurement::seconds_since(begin) / repetitions;
}

}  // namespace lockstep::benchmarks
