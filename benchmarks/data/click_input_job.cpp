// click_input_job <memory|parquet> <folder> <rows in memory> <steps> <batch size>: trains train_ctr's Wide &
// Deep on click logs of Parquet files, or on as many of their rows which it has put into memory before, and
// prints the rows a second of the steps after the first 100, as JSON.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/apps/train_ctr/ctr_model.h"
#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/datasets/clicks/click_batch.h"
#include "lockstep/datasets/clicks/parquet_clicks.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/training_steps.h"
#include "lockstep/training/metrics/loss_functions.h"

namespace lockstep::benchmarks {
namespace {

constexpr int64_t kWarmUp = 100;  // steps

/// Rows whose batches are picked out of three tensors.
class ClicksInMemory {
 public:
  ClicksInMemory(const ParquetClicks& clicks, size_t rows) : rows_(std::min(rows, *clicks.size())) {
    constexpr size_t kPiece = 65'536;
    std::vector<at::Tensor> numbers, ids, labels;
    for (size_t begin = 0; begin < rows_; begin += kPiece) {
      std::vector<size_t> indices(std::min(kPiece, rows_ - begin));
      std::iota(indices.begin(), indices.end(), begin);
      const ClickBatch piece = clicks.get_batch(indices);
      numbers.push_back(std::get<0>(piece.data));
      ids.push_back(std::get<1>(piece.data));
      labels.push_back(piece.target);
    }
    numbers_ = at::cat(numbers);
    ids_ = at::cat(ids);
    labels_ = at::cat(labels);
  }

  std::optional<size_t> size() const { return rows_; }
  ClickBatch get_batch(c10::ArrayRef<size_t> indices) const {
    const auto rows = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
    std::copy(indices.begin(), indices.end(), rows.mutable_data_ptr<int64_t>());
    return {std::tuple(numbers_.index_select(0, rows), ids_.index_select(0, rows)),
            labels_.index_select(0, rows)};
  }

 private:
  size_t rows_;
  at::Tensor numbers_, ids_, labels_;
};

torch::Tensor train_step(ReplicaContext& replica, apps::CtrModel& model, apps::CtrOptimizer& network,
                         apps::CtrOptimizer& tables, const ClickBatch& batch) {
  network->zero_grad();
  tables->zero_grad();
  const auto loss = compute_average_loss(replica, sigmoid_cross_entropy(model->forward(batch), batch.target));
  loss.backward();
  replica.apply_gradients(*network);
  replica.apply_gradients(*tables);
  return loss.detach();
}

/// Returns the rows a second.
template <typename D>
double train(const D& dataset, int64_t steps, int64_t batch_size) {
  OneDeviceStrategy strategy("cpu:0");
  const apps::CtrWork work;
  auto model = strategy.scope([&](ReplicaContext&) { return apps::CtrModel(work); });
  auto network = strategy.scope([&](ReplicaContext& replica) {
    return apps::make_network_optimizer(work, model[replica]->network_parameters());
  });
  auto tables = strategy.scope([&](ReplicaContext& replica) {
    return apps::make_table_optimizer(work, model[replica]->table_parameters());
  });
  TrainingSteps<ClickBatch> training(
      strategy, "train", dataset, {.global_batch_size = batch_size, .shuffle_seed = 1},
      [&](const StepSlot&, PerReplica<ClickBatch>& batch) {
        const auto losses = strategy.run(train_step, model, network, tables, batch);
        return std::tuple(strategy.reduce(ReduceOp::kSum, losses).template item<double>());
      });
  const auto ignore = [](int64_t, const std::vector<ClosureValues>&) {};
  training.run(0, kWarmUp, ignore);
  const auto begin = std::chrono::steady_clock::now();
  training.run(kWarmUp, kWarmUp + steps, ignore);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(steps * batch_size) / seconds.count();
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5 || (arguments[0] != "memory" && arguments[0] != "parquet")) {
    std::cerr << "expected memory or parquet, a folder, rows, steps and a batch size\n";
    return 2;
  }
  torch::manual_seed(1);
  const int64_t steps = std::stoll(arguments[3]), batch_size = std::stoll(arguments[4]);
  const auto rows = static_cast<size_t>(std::stoull(arguments[2]));
  std::optional<ParquetClicks> clicks(std::in_place, ParquetDatasetOptions{.paths = {arguments[1]}});
  double speed = 0;
  if (arguments[0] == "parquet") {
    speed = train(*clicks, steps, batch_size);
  } else {
    const ClicksInMemory in_memory(*clicks, rows);
    clicks.reset();  // with its threads
    speed = train(in_memory, steps, batch_size);
  }
  std::cout << R"({"rows_per_second": )" << speed << "}\n";
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] {
    return lockstep::benchmarks::run({argv + 1, argv + argc});
  });
}
