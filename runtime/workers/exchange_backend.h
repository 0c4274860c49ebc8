#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/runtime/exchange/algorithm_choice.h"
#include "lockstep/runtime/exchange/exchange_engine.h"
#include "lockstep/runtime/exchange/make_plan.h"
#include "lockstep/runtime/workers/comparing_backend.h"

namespace lockstep {

/// c10d's collectives of CPU tensors by an ExchangeEngine, with one rank for each worker process.
///
/// Sums are made in the order of sum_order(), which depends on the ranks alone, unless the policy asks for
/// another algorithm. Work::wait() does the
/// exchange, in the calling thread, so works must be waited for in the order in which they were launched. It
/// throws CollectiveMismatch, which names both ranks and their calls, and otherwise BrokenExchange naming
/// the rank. After an error the backend cannot be used again.
class ExchangeBackend : public ComparingBackend {
 public:
  struct Options {
    std::string op;  ///< begins its errors
    ExchangeEngine::Options engine;
    std::chrono::milliseconds timeout{};  ///< of each collective
    /// Returns a rank's name for errors.
    std::function<std::string(int rank)> name_of;
    ExchangePolicy policy{};  ///< the same on all ranks
  };

  explicit ExchangeBackend(Options options);

  const std::string getBackendName() const override { return "exchange"; }
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

  void begin_call(uint64_t sequence, const std::string& description) override;
  void end_call() override;

  /// Computes SUM, PRODUCT, MIN or MAX in place. Minimum and maximum of a NaN and a number are NaN. Throws
  /// InvalidArgument for another reduction, several tensors, or a dtype that cannot be reduced: only float16,
  /// bfloat16, float32, float64, int32 and int64 can.
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options = {}) override;
  /// All ranks' inputs must have one size.
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options = {}) override;
  /// Reduces as allreduce() does, with the same order of sums. Inputs for different ranks may differ in size.
  /// Overwrites all inputs; the output may be this rank's own.
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options = {}) override;
  /// Sizes may differ from pair to pair. Work::wait() throws CollectiveMismatch if those of both ends differ.
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options = {}) override;
  /// Sends one tensor to a rank, which calls recv() as the same collective of the channel. The others take no
  /// part.
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int source, int tag) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options = {}) override;
  /// Ends works that wait, on this rank and on those that wait for it. Thread-safe.
  void abort() override;

 private:
  const ExchangePlan& plan_of(CollectiveKind kind, PlanAlgorithm algorithm, int root = 0);
  /// Returns the plan of the algorithm that suits a result of `bytes`.
  const ExchangePlan& fastest_plan(CollectiveKind kind, size_t bytes, int root = 0);
  void run(ExchangeCall call);
  /// Cuts contiguous memory into a plan's blocks.
  std::vector<std::span<uint8_t>> blocks_of(const ExchangePlan& plan, const at::Tensor& tensor) const;
  void check_list(const char* operation, const std::vector<at::Tensor>& tensors) const;
  /// Appends memory for the plan's scratch.
  void append_scratch(const ExchangePlan& plan, std::vector<std::span<uint8_t>>& blocks);
  [[noreturn]] void fail(const ExchangeError& error, const ExchangeCall& call) const;

  const Options options_;
  std::chrono::milliseconds timeout_;
  ExchangeEngine engine_;
  std::map<CollectiveKind, std::vector<AlgorithmRange>> choices_;
  std::map<std::tuple<CollectiveKind, PlanAlgorithm, int>, ExchangePlan> plans_;
  std::vector<uint8_t> scratch_;
  uint64_t sequence_ = 0;
  std::string description_;
  int num_collectives_ = 0;  // of the current call
};

}  // namespace lockstep
