#include "lockstep/benchmarks/scaling/scaling_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/measurement/markdown_table.h"

namespace lockstep::benchmarks {
namespace {

using measurement::MarkdownTable;

using Json = nlohmann::ordered_json;

constexpr int kMostWorkers = 1024;
constexpr int64_t kLeastBucketBytes = int64_t{128} << 10;
constexpr size_t kNumCommunications = std::size(kCommunications);

const char* name_of(Overlap overlap) {
  return overlap == Overlap::kBackward ? "overlap" : "no overlap";
}

std::string name_of(const Communication& communication, const std::string& compression) {
  return fmt::format("{}, {}", name_of(communication.overlap),
                     communication.compressed ? compression : std::string("float32"));
}

std::string name_of(const std::optional<PlanAlgorithm>& algorithm) {
  return algorithm ? to_string(*algorithm) : "chosen";
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.1f} ms", seconds * 1e3);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", share * 100);
}

template <typename Row>
void add_predictions(Json& entry, const Row& row, const std::string& compression) {
  entry["predictions"] = Json::array();
  for (size_t i = 0; i < kNumCommunications; ++i) {
    entry["predictions"].push_back({{"overlap", kCommunications[i].overlap == Overlap::kBackward},
                                    {"compression", kCommunications[i].compressed ? compression : "none"},
                                    {"seconds", row.seconds[i]},
                                    {"efficiency", row.efficiency[i]}});
  }
}

template <typename Row>
std::vector<std::string> with_predictions(std::vector<std::string> cells, const Row& row) {
  for (size_t i = 0; i < kNumCommunications; ++i)
    cells.push_back(milliseconds(row.seconds[i]) + ", " + percent(row.efficiency[i]));
  return cells;
}

std::vector<std::string> prediction_header(std::vector<std::string> cells, const std::string& compression) {
  for (const auto& communication : kCommunications) cells.push_back(name_of(communication, compression));
  return cells;
}

MarkdownTable compute_table(const MeasuredScaling& measured) {
  MarkdownTable table({"processes", "images each", "forward", "backward", "of it copying", "optimizer",
                       "for the slowest", "buckets of 1 and 25 MiB ready at"});
  for (const auto& [num_processes, num_examples, sample] : measured.compute) {
    std::string ready;
    for (const auto& bucket : sample.times.in_buckets(kDefaultBuckets).buckets) {
      ready += fmt::format("{}{:.2f} MB: {:.0f} %", ready.empty() ? "" : ", ", bucket.bytes * 1e-6,
                           100 * bucket.ready_seconds / sample.times.backward_seconds);
    }
    table.add_row({std::to_string(num_processes), std::to_string(num_examples),
                   milliseconds(sample.times.forward_seconds), milliseconds(sample.times.backward_seconds),
                   milliseconds(sample.copy_seconds), milliseconds(sample.times.optimizer_seconds),
                   milliseconds(sample.times.waiting_seconds), ready});
  }
  return table;
}

std::string bandwidth(const Line& seconds) {
  return seconds.slope > 0 ? fmt::format("{:.2f} GB/s", 1e-9 / seconds.slope) : "not measurable";
}

MarkdownTable exchange_table(const MeasuredScaling& measured, const std::string& compression) {
  MarkdownTable table({"processes", "over", "algorithm", "gradients sent as", "an exchange without bytes",
                       "bandwidth of sent bytes", "processor's time for 1 MB sent",
                       "largest error of the fit"});
  for (const auto& rows : measured.exchanges) {
    const auto& fit = rows.fit;
    double worst = 0;
    for (const auto& sample : rows.samples) {
      const double fitted =
          fit.seconds.at(sent_bytes(fit.policy, fit.num_ranks, fit.sent_share * sample.bytes));
      worst = std::max(worst, std::abs(fitted / sample.seconds - 1));
    }
    table.add_row({std::to_string(rows.num_processes), fit.policy.transport, name_of(rows.kind.algorithm),
                   rows.kind.compressed ? compression : "float32",
                   fmt::format("{:.0f} us", rows.fit.seconds.intercept * 1e6), bandwidth(rows.fit.seconds),
                   fmt::format("{:.2f} ms", rows.fit.cpu_seconds.slope * 1e9), percent(worst)});
  }
  return table;
}

MarkdownTable check_table(const MeasuredScaling& measured, const std::string& compression) {
  MarkdownTable table({"processes", "communication", "predicted", "measured", "95 % interval", "error"});
  for (const auto& row : measured.checks) {
    const auto& [median, lower, upper] = row.measured_seconds;
    table.add_row({std::to_string(row.num_processes),
                   row.num_processes == 1 ? "none" : name_of(row.communication, compression),
                   milliseconds(row.predicted_seconds), milliseconds(median),
                   fmt::format("{:.1f} to {:.1f}", lower * 1e3, upper * 1e3),
                   fmt::format("{:+.1f} %", row.error() * 100)});
  }
  return table;
}

}  // namespace

ScalingReport::ScalingReport(const ScalingOptions& options, MeasuredScaling measurement)
    : options_(options), measured_(std::move(measurement)) {
  predict_weak_scaling();
  predict_bucket_sizes();
  predict_strong_scaling();
  predict_gpu_cluster();
}

void ScalingReport::predict_weak_scaling() {
  const auto cluster = measured_.cluster_model();
  const auto num_examples = static_cast<double>(options_.batch_size);
  const auto compute = measured_.compute_model().at(num_examples);
  for (const auto& [name, link] : options_.links) {
    for (int workers = 1; workers <= kMostWorkers; workers *= 2) {
      Row row{name, workers, num_examples};
      for (size_t i = 0; i < kNumCommunications; ++i) {
        row.seconds[i] =
            predict_step(cluster, compute, workers, link, kCommunications[i], options_.buckets());
        row.efficiency[i] = compute.seconds() / row.seconds[i];
      }
      weak_.push_back(row);
    }
  }
}

void ScalingReport::predict_bucket_sizes() {
  const auto cluster = measured_.cluster_model();
  const auto compute = measured_.compute_model().at(static_cast<double>(options_.batch_size));
  for (const auto& [name, link] : options_.links) {
    const auto seconds_with = [&, &link = link](int workers, int64_t bucket_bytes) {
      return predict_step(cluster, compute, workers, link, {Overlap::kBackward, false},
                          {.bucket_bytes = bucket_bytes});
    };
    for (int workers = 4; workers <= kMostWorkers; workers *= 4) {
      BucketRow row{.link = name,
                    .num_workers = workers,
                    .chosen_bytes = choose_bucket_bytes(workers, ExchangePolicy{}),
                    .best_bytes = kDefaultBuckets.bucket_bytes};
      row.chosen_seconds = seconds_with(workers, row.chosen_bytes);
      row.default_seconds = seconds_with(workers, kDefaultBuckets.bucket_bytes);
      row.best_seconds = row.default_seconds;
      for (int64_t bytes = kLeastBucketBytes; bytes <= kDefaultBuckets.bucket_bytes; bytes *= 2) {
        const double seconds = seconds_with(workers, bytes);
        if (seconds >= row.best_seconds) continue;
        row.best_seconds = seconds;
        row.best_bytes = bytes;
      }
      bucket_sizes_.push_back(row);
    }
  }
}

void ScalingReport::predict_strong_scaling() {
  const auto cluster = measured_.cluster_model();
  const auto compute = measured_.compute_model();
  const auto all = static_cast<double>(options_.strong_batch_size);
  const double alone = compute.at(all).seconds();
  for (const auto& [name, link] : options_.links) {
    for (int workers = 1; workers <= std::min<int64_t>(kMostWorkers, options_.strong_batch_size);
         workers *= 2) {
      Row row{name, workers, all / workers};
      for (size_t i = 0; i < kNumCommunications; ++i) {
        row.seconds[i] = predict_step(cluster, compute.at(all / workers), workers, link, kCommunications[i],
                                      options_.buckets());
        row.efficiency[i] = alone / (workers * row.seconds[i]);
      }
      strong_.push_back(row);
    }
  }
}

void ScalingReport::predict_gpu_cluster() {
  for (const auto& [kind, name] : {std::pair{RingKind::kFlat, "one ring over all GPUs"},
                                   std::pair{RingKind::kHierarchical, "within each machine, then between"}}) {
    GpuRow row{name};
    for (size_t i = 0; i < kNumCommunications; ++i) {
      row.seconds[i] = predict_gpu_step(options_.gpu_cluster, kind, kCommunications[i]);
      row.efficiency[i] = options_.gpu_cluster.compute_seconds / row.seconds[i];
    }
    gpu_.push_back(row);
  }
}

double ScalingReport::worst_error() const {
  double worst = 0;
  for (const auto& row : measured_.checks) worst = std::max(worst, std::abs(row.error()));
  return worst;
}

std::string ScalingReport::json() const {
  Json json;
  for (const auto& [num_processes, num_examples, sample] : measured_.compute) {
    Json entry{{"processes", num_processes},
               {"images", num_examples},
               {"forward_seconds", sample.times.forward_seconds},
               {"backward_seconds", sample.times.backward_seconds},
               {"copy_seconds", sample.copy_seconds},
               {"optimizer_seconds", sample.times.optimizer_seconds},
               {"waiting_seconds", sample.times.waiting_seconds},
               {"buckets", Json::array()}};
    for (const auto& bucket : sample.times.in_buckets(options_.buckets()).buckets)
      entry["buckets"].push_back({{"bytes", bucket.bytes}, {"ready_seconds", bucket.ready_seconds}});
    json["compute"].push_back(std::move(entry));
  }
  for (const auto& rows : measured_.exchanges) {
    Json entry{{"processes", rows.num_processes},
               {"compression", rows.kind.compressed ? options_.compression : "none"},
               {"transport", rows.fit.policy.transport},
               {"algorithm", name_of(rows.kind.algorithm)},
               {"seconds_without_bytes", rows.fit.seconds.intercept},
               {"seconds_per_sent_byte", rows.fit.seconds.slope},
               {"cpu_seconds_without_bytes", rows.fit.cpu_seconds.intercept},
               {"cpu_seconds_per_sent_byte", rows.fit.cpu_seconds.slope},
               {"samples", Json::array()}};
    for (const auto& sample : rows.samples) {
      entry["samples"].push_back(
          {{"bytes", sample.bytes}, {"seconds", sample.seconds}, {"cpu_seconds", sample.cpu_seconds}});
    }
    json["exchanges"].push_back(std::move(entry));
  }
  json["conversion_seconds_per_byte"] = measured_.conversion_seconds_per_byte;
  for (const auto& row : measured_.checks) {
    json["checks"].push_back(
        {{"processes", row.num_processes},
         {"overlap", row.communication.overlap == Overlap::kBackward},
         {"compression", row.communication.compressed ? options_.compression : "none"},
         {"predicted_seconds", row.predicted_seconds},
         {"measured_seconds", row.measured_seconds.median},
         {"measured_interval_95", {row.measured_seconds.lower, row.measured_seconds.upper}},
         {"error", row.error()}});
  }
  json["worst_error"] = worst_error();
  const auto add_rows = [&](const char* name, const std::vector<Row>& rows) {
    for (const auto& row : rows) {
      Json entry{{"link", row.link}, {"workers", row.num_workers}, {"images", row.num_examples}};
      add_predictions(entry, row, options_.compression);
      json[name].push_back(std::move(entry));
    }
  };
  add_rows("weak_scaling", weak_);
  for (const auto& row : bucket_sizes_) {
    json["bucket_sizes"].push_back({{"link", row.link},
                                    {"workers", row.num_workers},
                                    {"chosen_bytes", row.chosen_bytes},
                                    {"chosen_seconds", row.chosen_seconds},
                                    {"default_seconds", row.default_seconds},
                                    {"best_bytes", row.best_bytes},
                                    {"best_seconds", row.best_seconds}});
  }
  add_rows("strong_scaling", strong_);
  for (const auto& row : gpu_) {
    Json entry{{"machines", options_.gpu_cluster.topology.num_machines},
               {"gpus_each", options_.gpu_cluster.topology.replicas_each},
               {"all_reduce", row.ring},
               {"is_measured", false}};
    add_predictions(entry, row, options_.compression);
    json["gpu_cluster"].push_back(std::move(entry));
  }
  return json.dump(2);
}

std::ostream& operator<<(std::ostream& stream, const ScalingReport& report) {
  const auto& options = report.options_;
  const auto& measured = report.measured_;
  stream << "## Measured\n\nCompute of processes that do not communicate:\n\n"
         << compute_table(measured) << "\nExchanges between processes of this machine:\n\n"
         << exchange_table(measured, options.compression)
         << fmt::format("\nTo {} and back: {:.2f} ms for 1 MB of gradients.\n", options.compression,
                        measured.conversion_seconds_per_byte * 1e9)
         << "\n## Predicted and measured on this machine\n\n"
         << check_table(measured, options.compression)
         << fmt::format("\nThe largest error is {:.1f} %.\n", 100 * report.worst_error());
  const auto add_rows = [&](const std::vector<ScalingReport::Row>& rows) {
    MarkdownTable table(prediction_header({"link", "workers", "images each"}, options.compression));
    for (const auto& row : rows) {
      table.add_row(with_predictions(
          {row.link, std::to_string(row.num_workers), fmt::format("{:g}", row.num_examples)}, row));
    }
    stream << table;
  };
  stream << fmt::format("\n## Predicted: weak scaling, {} images a worker\n\n", options.batch_size);
  add_rows(report.weak_);
  stream << "\n## Predicted: sizes of buckets, with overlap and float32\n\n";
  const double alone = report.measured_.compute_model().at(static_cast<double>(options.batch_size)).seconds();
  MarkdownTable sizes({"link", "workers", "chosen by the library", "efficiency", "with 25 MiB",
                       "best by the model", "efficiency "});
  for (const auto& row : report.bucket_sizes_) {
    const auto kibibytes = [](int64_t bytes) { return fmt::format("{} KiB", bytes >> 10); };
    sizes.add_row({row.link, std::to_string(row.num_workers), kibibytes(row.chosen_bytes),
                   percent(alone / row.chosen_seconds), percent(alone / row.default_seconds),
                   kibibytes(row.best_bytes), percent(alone / row.best_seconds)});
  }
  stream << sizes;
  stream << fmt::format("\n## Predicted: strong scaling, {} images over all workers\n\n",
                        options.strong_batch_size);
  add_rows(report.strong_);
  const auto& cluster = options.gpu_cluster;
  const auto& topology = cluster.topology;
  const auto link = [](const DeviceLink& way) {
    return fmt::format("{:g} Gbit/s and {:g} us", way.bytes_per_second * 8e-9, way.latency_seconds * 1e6);
  };
  stream << fmt::format(
      "\n## Predicted from assumptions alone: {} machines x {} GPUs\n\nNothing of this was measured. "
      "Assumed: {} of "
      "compute a step, {:.1f} MB of float32 gradients, {} between GPUs of a machine, {} between "
      "machines.\n\n",
      topology.num_machines, topology.replicas_each, milliseconds(cluster.compute_seconds),
      cluster.gradient_bytes * 1e-6, link(topology.within), link(topology.between));
  MarkdownTable gpu(prediction_header({"all-reduce"}, options.compression));
  for (const auto& row : report.gpu_) gpu.add_row(with_predictions({row.ring}, row));
  return stream << gpu;
}

}  // namespace lockstep::benchmarks
