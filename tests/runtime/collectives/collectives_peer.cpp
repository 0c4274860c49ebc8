// collectives_peer REPLICAS[,REPLICAS...]: runs collectives among the replicas of these workers and prints
// each replica's results as JSON, one object a line, for pytorch_collectives_test.py.
#include <torch/types.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/collectives.h"
#include "lockstep/tests/support/replica_group.h"
#include "lockstep/tests/support/worker_threads.h"

namespace lockstep {
namespace {

const std::map<std::string, at::ScalarType> kDtypes{
    {"float32", at::kFloat}, {"float64", at::kDouble}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16},
    {"int64", at::kLong},    {"int32", at::kInt},      {"int8", at::kChar},    {"uint8", at::kByte}};

/// Small whole numbers, whose sums are exact in every dtype. The test computes the same ones.
at::Tensor numbers(int64_t seed, at::IntArrayRef shape, at::ScalarType dtype) {
  const auto count = c10::multiply_integers(shape);
  return ((torch::arange(count, torch::kLong) * 7 + seed * 3) % 11).view(shape).to(dtype);
}

class Output {
 public:
  void add(int rank, const std::string& collective, const std::string& dtype, const at::Tensor& value) {
    std::ostringstream line;
    line << "{\"rank\": " << rank << ", \"collective\": \"" << collective << "\", \"dtype\": \"" << dtype
         << "\", \"shape\": [";
    for (int64_t i = 0; i < value.dim(); ++i) line << (i > 0 ? ", " : "") << value.size(i);
    line << "], \"values\": [";
    const at::Tensor flat = value.to(at::kDouble).contiguous().view({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) line << (i > 0 ? ", " : "") << flat[i].item<double>();
    line << "]}\n";
    const std::lock_guard lock(mutex_);
    std::cout << line.str();
  }

 private:
  std::mutex mutex_;
};

void run_collectives(int rank, const BackendPointer& backend, Output& output) {
  const int ranks = backend->getSize();
  for (const auto& [name, dtype] : kDtypes) {
    const auto whole = numbers(rank, {2 * ranks, 3}, dtype);
    output.add(rank, "reduce_scatter", name, reduce_scatter(backend, ReduceOp::kSum, whole, 0));
    std::vector<at::Tensor> values;
    for (int to = 0; to < ranks; ++to)
      values.push_back(numbers(10 * rank + to, {(rank + 2 * to) % 3, 2}, dtype));
    output.add(rank, "all_to_all", name, at::cat(all_to_all(backend, values)));
    output.add(rank, "all_to_all_single", name, all_to_all(backend, whole, 0, 0));
    send(backend, whole, (rank + 1) % ranks);
    output.add(rank, "ring", name, receive(backend, (rank + ranks - 1) % ranks, whole.sizes(), dtype));
  }
  const auto gradient_of = [&](const std::string& collective, const auto& function) {
    auto input = numbers(rank, {2 * ranks, 3}, at::kDouble).requires_grad_();
    (function(input).pow(2) * (rank + 1)).sum().backward();
    output.add(rank, collective, "float64", input.grad());
  };
  gradient_of("reduce_scatter_gradient",
              [&](const at::Tensor& x) { return reduce_scatter(backend, ReduceOp::kSum, x, 0); });
  gradient_of("all_to_all_gradient", [&](const at::Tensor& x) { return all_to_all(backend, x, 0, 0); });
  gradient_of("all_gather_gradient", [&](const at::Tensor& x) { return all_gather(backend, x, 0); });
}

int run(const std::string& layout) {
  std::vector<int> workers;
  std::istringstream text(layout);
  for (std::string count; std::getline(text, count, ',');) workers.push_back(std::stoi(count));
  Output output;
  if (workers.size() == 1) {
    ReplicaGroup group(workers[0]);
    group.run([&](int rank) { run_collectives(rank, group.backend(rank), output); });
    return EXIT_SUCCESS;
  }
  for (const auto& error : run_workers(workers, [&](WorkerGroup& group) {
         WorkerReplicas replicas(group);
         replicas.run([&](int rank, c10d::Backend& backend) {
           run_collectives(rank, BackendPointer::reclaim_copy(&backend), output);
         });
       })) {
    if (!error) continue;
    std::cerr << message_of<std::exception>(error) << "\n";
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: collectives_peer REPLICAS[,REPLICAS...]\n";
    return EXIT_FAILURE;
  }
  return lockstep::run(argv[1]);
}
