// parquet_job write <folder> <rows> <rows per group> <compression>: writes generated click logs as Parquet
// files of a million rows.
// parquet_job read <folder> <seconds> <threads> <batch size> <shuffled|ordered> <memory>: makes batches of
// them for so long, after two seconds that are not counted, and prints rows, seconds and memory as JSON.
// parquet_job restart <folder> <share of the epoch> <threads> <batch size> <memory>: opens the files, goes to
// that place of a shuffled epoch, and prints the seconds until its first batch as JSON.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/benchmarks/run_program.h"
#include "lockstep/datasets/clicks/generated_clicks.h"
#include "lockstep/datasets/clicks/parquet_clicks.h"
#include "lockstep/datasets/parquet/parquet_writer.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/strategies/input/distributed_dataset.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep::benchmarks {
namespace {

constexpr int64_t kRowsOfFile = 1'000'000;

void write_files(const std::string& folder, int64_t rows, int64_t rows_per_group,
                 const std::string& compression) {
  const GeneratedClicks clicks({.count = rows, .seed = 1});
  constexpr int64_t kPiece = 10'000;
  for (int64_t begin = 0; begin < rows; begin += kRowsOfFile) {
    ParquetWriter writer({.path = folder + "/clicks_" + std::to_string(begin / kRowsOfFile) + ".parquet",
                          .columns = click_columns(),
                          .rows_per_group = rows_per_group,
                          .compression = compression,
                          .null_value = kMissingClickValue});
    const int64_t end = std::min(rows, begin + kRowsOfFile);
    for (int64_t first = begin; first < end; first += kPiece) {
      std::vector<ClickRow> piece;
      for (int64_t i = first; i < std::min(end, first + kPiece); ++i)
        piece.push_back(clicks.row(static_cast<size_t>(i)));
      writer.append(click_values(piece));
    }
    writer.close();
  }
}

struct Reading {
  std::string folder;
  double seconds = 1;
  int threads = 1;
  int64_t batch_size = 1024;
  bool is_shuffled = true;
  int64_t memory_limit = 0;
};

ParquetDataset open_dataset(const Reading& reading) {
  return ParquetDataset({.paths = {reading.folder}, .null_fill = -1, .memory_limit = reading.memory_limit});
}

DistributeOptions distribute_options(const Reading& reading) {
  DistributeOptions options{.global_batch_size = reading.batch_size, .num_workers = reading.threads};
  if (reading.is_shuffled) options.shuffle_seed = 1;
  return options;
}

using Clock = std::chrono::steady_clock;
double passed(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

void restart(const Reading& reading, double share_of_epoch) {
  MirroredStrategy strategy({"cpu:0"}, {.intra_op_threads = 1});
  const auto begin = Clock::now();
  const ParquetDataset dataset = open_dataset(reading);
  auto batches = strategy.distribute_dataset(dataset, distribute_options(reading));
  const auto step = static_cast<int64_t>(share_of_epoch * static_cast<double>(batches.size()));
  batches.restore({.epoch = 1, .step = std::min(step, batches.size() - 1)});
  const auto batch = batches.begin();
  std::cout << R"({"seconds": )" << passed(begin) << R"(, "rows": )" << batch->batch_sizes()->global << "}\n";
}

void read_files(const Reading& reading) {
  MirroredStrategy strategy({"cpu:0"}, {.intra_op_threads = 1});
  // The tensors' allocator and the strategy have their memory before the dataset has any.
  const int64_t before = measurement::peak_memory_bytes(), code_before = measurement::mapped_file_bytes();
  const auto opened = Clock::now();
  const ParquetDataset dataset = open_dataset(reading);
  auto batches = strategy.distribute_dataset(dataset, distribute_options(reading)).repeat();
  auto batch = batches.begin();
  const double first_batch = passed(opened);
  constexpr double kWarmUp = 2;  // seconds in which memory is touched for the first time
  while (passed(opened) < kWarmUp) ++batch;
  int64_t rows = 0;
  const auto begin = Clock::now();
  while (passed(begin) < reading.seconds) {
    ++batch;
    rows += batch->batch_sizes()->global;
  }
  std::cout << R"({"rows": )" << rows << R"(, "seconds": )" << passed(begin) << R"(, "first_batch": )"
            << first_batch << R"(, "peak_bytes": )" << dataset.peak_memory() << R"(, "resident_bytes": )"
            << measurement::peak_memory_bytes() - before << R"(, "code_bytes": )"
            << measurement::mapped_file_bytes() - code_before << R"(, "decoded": )"
            << dataset.num_decoded_row_groups() << R"(, "lanes": )" << dataset.max_open_chunks() << "}\n";
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 5 && arguments[0] == "write") {
    std::filesystem::create_directories(arguments[1]);
    write_files(arguments[1], std::stoll(arguments[2]), std::stoll(arguments[3]), arguments[4]);
    return 0;
  }
  if (arguments.size() == 7 && arguments[0] == "read") {
    read_files({.folder = arguments[1],
                .seconds = std::stod(arguments[2]),
                .threads = std::stoi(arguments[3]),
                .batch_size = std::stoll(arguments[4]),
                .is_shuffled = arguments[5] == "shuffled",
                .memory_limit = std::stoll(arguments[6])});
    return 0;
  }
  if (arguments.size() == 6 && arguments[0] == "restart") {
    restart({.folder = arguments[1],
             .threads = std::stoi(arguments[3]),
             .batch_size = std::stoll(arguments[4]),
             .memory_limit = std::stoll(arguments[5])},
            std::stod(arguments[2]));
    return 0;
  }
  std::cerr << "expected write, read or restart with their arguments, as the source says\n";
  return 2;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] {
    return lockstep::benchmarks::run({argv + 1, argv + argc});
  });
}
