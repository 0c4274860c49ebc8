#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <c10/util/StringUtil.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/benchmarks/bar.h"
#include "lockstep/benchmarks/exchange/transport_options.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/measurement/statistics.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/exchange/link_hub.h"
#include "lockstep/runtime/workers/exchange_backend.h"
#include "lockstep/runtime/workers/gloo_backend.h"

namespace lockstep::benchmarks {
namespace {

using measurement::MedianInterval;
using Clock = std::chrono::steady_clock;
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

constexpr std::chrono::minutes kTimeout{5};
// A measurement takes about as long, whatever the size.
constexpr double kSecondsPerMeasurement = 0.05;

struct Ranks {
  int rank = 0;
  int size = 1;
};

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

/// Exchanges that make their links as WorkerGroup does.
class Exchanges {
 public:
  enum class Over { kSharedMemory, kTcp, kEncryptedTcp };

  Exchanges(const Ranks& ranks, c10d::Store& store, Over over)
      : hub_(std::make_shared<LinkHub>(LinkHub::Options{.rank = ranks.rank,
                                                        .token = JobToken::from_text("benchmark"),
                                                        .host = "127.0.0.1",
                                                        .uses_shared_memory = over == Over::kSharedMemory,
                                                        .encrypts = over == Over::kEncryptedTcp})) {
    const auto prefix = c10::str("over ", static_cast<int>(over), "/");
    const auto own = hub_->address();
    store.set(c10::str(prefix, ranks.rank), c10::str(own.port, " ", own.local_name));
    std::vector<LinkAddress> addresses;
    for (int rank = 0; rank < ranks.size; ++rank) {
      const auto text = text_of(store.get(c10::str(prefix, rank)));
      addresses.push_back({"127.0.0.1", std::stoi(text), text.substr(text.find(' ') + 1)});
    }
    hub_->set_peers(std::move(addresses));
    backend_ = c10::make_intrusive<ExchangeBackend>(ExchangeBackend::Options{
        .op = "benchmark",
        .engine = {.rank = ranks.rank,
                   .size = ranks.size,
                   .connect = [hub = hub_](int peer,
                                           auto deadline) { return hub->connect(peer, 0, deadline); }},
        .timeout = kTimeout,
        .name_of = [](int rank) { return c10::str("rank ", rank); },
        .policy = over == Over::kSharedMemory
                      ? ExchangePolicy{.transport = "shared memory", .costs = kSharedMemoryCosts}
                      : ExchangePolicy{}});
  }

  const c10::intrusive_ptr<ExchangeBackend>& backend() const { return backend_; }

 private:
  std::shared_ptr<LinkHub> hub_;
  c10::intrusive_ptr<ExchangeBackend> backend_;
};

/// One process of the benchmark.
class Process {
 public:
  Process(const Ranks& ranks, c10::intrusive_ptr<c10d::Store> store)
      : ranks_(ranks),
        shared_(ranks, *store, Exchanges::Over::kSharedMemory),
        tcp_(ranks, *store, Exchanges::Over::kTcp),
        encrypted_(ranks, *store, Exchanges::Over::kEncryptedTcp),
        gloo_(make_gloo_backend(store, {ranks.rank, ranks.size, "127.0.0.1", kTimeout})) {}

  /// Measures one size, and prints a row on rank 0.
  void measure(int64_t bytes, int pairs) {
    const at::Tensor values = at::full({bytes / 4}, 1.0F);
    const auto in_shared = [&] { return seconds_of(*shared_.backend(), values); };
    const auto in_tcp = [&] { return seconds_of(*tcp_.backend(), values); };
    const auto in_encrypted = [&] { return seconds_of(*encrypted_.backend(), values); };
    const auto in_gloo = [&] { return seconds_of(*gloo_, values); };
    repetitions_ = 3;
    for (const auto& warm_up : std::vector<std::function<double()>>{in_shared, in_tcp, in_encrypted})
      warm_up();
    // All ranks repeat as often as rank 0 says.
    at::Tensor repetitions = at::full({1}, std::max(1.0, std::round(kSecondsPerMeasurement / in_gloo())));
    std::vector<at::Tensor> one{repetitions};
    gloo_->broadcast(one)->wait();
    repetitions_ = static_cast<int>(repetitions.item<double>());

    std::vector<double> shared_ratios, tcp_ratios, encrypted_ratios, gloo_seconds;
    for (int i = 0; i < pairs; ++i) {
      double shared = 0, tcp = 0, encrypted = 0, gloo = 0;
      // Who begins changes from round to round, so that none always runs in another's wake.
      for (int turn = 0; turn < 4; ++turn) {
        switch ((i + turn) % 4) {
          case 0:
            shared = in_shared();
            break;
          case 1:
            tcp = in_tcp();
            break;
          case 2:
            encrypted = in_encrypted();
            break;
          default:
            gloo = in_gloo();
        }
      }
      shared_ratios.push_back(gloo / shared);
      tcp_ratios.push_back(gloo / tcp);
      encrypted_ratios.push_back(tcp / encrypted);
      gloo_seconds.push_back(gloo);
    }
    if (ranks_.rank != 0) return;
    const auto cell = [](const std::vector<double>& ratios, const Bar& bar) {
      const auto ratio = measurement::median_with_interval(ratios);
      std::ostringstream text;
      text << std::fixed << std::setprecision(2) << ratio.median << " (" << ratio.lower << " to "
           << ratio.upper << "), " << bar.str() << (bar.is_met(ratio) ? " met" : " NOT met");
      return text.str();
    };
    std::cout << "| " << ranks_.size << " | " << bytes / 1024 << " KiB | "
              << std::lround(1e6 * measurement::median(gloo_seconds)) << " us | "
              << cell(shared_ratios, {.value = 2}) << " | " << cell(tcp_ratios, {.value = 1}) << " | "
              << cell(encrypted_ratios, {.value = 0.8}) << " |\n"
              << std::flush;
  }

 private:
  /// Returns the mean time of one all-reduce.
  double seconds_of(c10d::Backend& backend, const at::Tensor& values) {
    gloo_->barrier()->wait();
    at::Tensor own = values.clone();
    std::vector<at::Tensor> one{own};
    auto* comparing = dynamic_cast<ComparingBackend*>(&backend);
    const auto begin = Clock::now();
    for (int i = 0; i < repetitions_; ++i) {
      if (comparing != nullptr) comparing->begin_call(sequence_++, "all_reduce sum of float32");
      backend.allreduce(one)->wait();
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (own[0].item<float>() != std::pow(static_cast<float>(ranks_.size), static_cast<float>(repetitions_)))
      throw std::runtime_error("an all-reduce gave a wrong sum");
    return seconds / repetitions_;
  }

  const Ranks ranks_;
  Exchanges shared_;
  Exchanges tcp_;
  Exchanges encrypted_;
  BackendPointer gloo_;
  int repetitions_ = 1;
  uint64_t sequence_ = 0;
};

void run_process(const Ranks& ranks, int port, int listener, const TransportOptions& options) {
  at::set_num_threads(1);
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<uint16_t>(port);
  store_options.isServer = ranks.rank == 0;
  store_options.waitWorkers = false;
  store_options.timeout = kTimeout;
  if (ranks.rank == 0) store_options.masterListenFd = listener;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", store_options);
  {
    Process process(ranks, store);
    for (const int64_t kibibytes : options.kibibytes) process.measure(1024 * kibibytes, options.pairs);
  }
  // The store ends with rank 0.
  store->add("done", 1);
  while (ranks.rank == 0 && store->add("done", 0) < ranks.size) usleep(1000);
}

/// Forks before anything starts a thread. Returns whether all processes ended well.
bool run_processes(int size, const TransportOptions& options) {
  TcpListener listener("127.0.0.1", 0);
  const int port = listener.port();
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("cannot start a process");
    if (child == 0) {
      _exit(run_program([&] {
        run_process({rank, size}, port, listener.descriptor(), options);
        return 0;
      }));
    }
    children.push_back(child);
  }
  bool is_well = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    is_well = is_well && status == 0;
  }
  return is_well;
}

int run(int argc, char** argv) {
  const auto options = parse_transport_options(argc, argv);
  if (!options) return 0;
  std::cout << measurement::today() << ", " << measurement::describe_machine()
            << ". Speed over PyTorch's Gloo, of float32 sums: medians of " << options->pairs
            << " rounds, with 95 % intervals.\n\n"
            << "| processes | values | Gloo | shared memory | TCP | encrypted TCP over TCP |\n"
            << "|---|---|---|---|---|---|\n"
            << std::flush;
  for (const int size : options->processes) {
    if (!run_processes(size, *options)) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
