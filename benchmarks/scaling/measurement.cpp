#include "lockstep/benchmarks/scaling/measurement.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <thread>

#include "lockstep/benchmarks/scaling/scaling_jobs.h"

namespace lockstep::benchmarks {
namespace {

using measurement::median;
using measurement::median_with_interval;

/// Values of one quantity, one for each round.
using Series = std::vector<double>;

struct ComputeSeries {
  int64_t num_examples = 0;
  std::vector<ComputeSample> samples;
};

struct ExchangeSeries {
  ExchangeKind kind;
  std::unique_ptr<ExchangeJobs> jobs;
  std::vector<std::vector<ExchangeSample>> samples;  // by size, then by round
};

struct TrainingSeries {
  Communication communication;
  std::unique_ptr<TrainingJobs> jobs;
  Series seconds;
};

template <typename Sample, typename Get>
double median_of(const std::vector<Sample>& samples, const Get& get) {
  Series values;
  for (const auto& sample : samples) values.push_back(get(sample));
  return median(values);
}

ComputeSample median_of_compute(const std::vector<ComputeSample>& samples) {
  ComputeSample result = samples.front();
  const auto of = [&](double ComputeTimes::*member) {
    return median_of(samples, [member](const ComputeSample& sample) { return sample.times.*member; });
  };
  result.times.forward_seconds = of(&ComputeTimes::forward_seconds);
  result.times.backward_seconds = of(&ComputeTimes::backward_seconds);
  result.times.optimizer_seconds = of(&ComputeTimes::optimizer_seconds);
  result.times.waiting_seconds = of(&ComputeTimes::waiting_seconds);
  result.copy_seconds = median_of(samples, [](const ComputeSample& sample) { return sample.copy_seconds; });
  for (size_t i = 0; i < result.times.gradients.size(); ++i) {
    result.times.gradients[i].ready_seconds = median_of(
        samples, [i](const ComputeSample& sample) { return sample.times.gradients[i].ready_seconds; });
  }
  return result;
}

/// Small exchanges are repeated more often, so that requesting them does not distort the measurement.
int repetitions_of(int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>((8 << 20) / bytes, 2, 100));
}

/// All measurements with one number of processes.
class Processes {
 public:
  Processes(const ScalingOptions& options, int count)
      : options_(options), count_(count), compute_jobs_(options, count) {
    std::set<int64_t> sizes{options.batch_size};
    // The model of compute needs other sizes too.
    if (count == 1) sizes.insert({std::max<int64_t>(1, options.batch_size / 8), options.batch_size / 2});
    for (const int64_t size : sizes) compute_.push_back({size, {}});
    for (const auto& communication : kCommunications) {
      if (count == 1 && !training_.empty()) break;  // they are all the same
      auto& series = training_.emplace_back();
      series.communication = communication;
      series.jobs = std::make_unique<TrainingJobs>(options, count, compression(communication.compressed),
                                                   communication.overlap);
    }
    if (count == 1) return;
    std::vector<ExchangeKind> kinds{{.compressed = false}, {.compressed = true}};
    // The model of a cluster needs these.
    if (count == 2) {
      kinds.push_back({false, PlanAlgorithm::kRecursiveDoubling, /*uses_tcp=*/true});
      kinds.push_back({false, PlanAlgorithm::kHalving, /*uses_tcp=*/true});
      kinds.push_back({true, PlanAlgorithm::kHalving, /*uses_tcp=*/true});
    }
    for (const auto& kind : kinds) {
      auto& series = exchanges_.emplace_back();
      series.kind = kind;
      series.jobs = std::make_unique<ExchangeJobs>(options, count, compression(kind.compressed), kind);
      series.samples.resize(options.exchange_bytes.size());
    }
  }

  void measure() {
    std::vector<std::function<void()>> measurements;
    for (auto& series : compute_) {
      measurements.emplace_back(
          [&] { series.samples.push_back(compute_jobs_.run(options_.steps, series.num_examples)); });
    }
    for (auto& series : training_)
      measurements.emplace_back([&] { series.seconds.push_back(series.jobs->run(options_.steps)); });
    for (auto& series : exchanges_) measurements.emplace_back([&] { measure_exchanges(series); });
    for (const auto& warm_up : measurements) warm_up();
    forget();
    for (int round = 0; round < options_.num_rounds; ++round) {
      for (const auto& measurement : measurements) measurement();
      std::reverse(measurements.begin(), measurements.end());
    }
  }

  void add_to(MeasuredScaling& result) {
    result.num_parameters = compute_jobs_.num_parameters();
    result.num_tensors = compute_jobs_.num_tensors();
    result.num_cores = static_cast<int>(std::thread::hardware_concurrency());
    for (const auto& [num_examples, samples] : compute_)
      result.compute.push_back({count_, num_examples, median_of_compute(samples)});
    const ComputeSample& compute = result.compute.back().sample;  // the largest batch
    std::vector<LocalFit> fits;
    for (const auto& series : exchanges_) {
      ExchangeRows rows{count_, series.kind, medians_of(series), {}};
      rows.fit = fit_exchanges({.num_ranks = count_,
                                .policy = series.kind.policy(),
                                .sent_share = series.kind.compressed ? kCompressedShare : 1},
                               rows.samples);
      fits.push_back(rows.fit);
      result.exchanges.push_back(std::move(rows));
    }
    for (const auto& [communication, jobs, seconds] : training_) {
      const double predicted = count_ == 1
                                   ? compute.times.seconds() - compute.copy_seconds
                                   : predict_local_step(fits[0], fits[communication.compressed ? 1 : 0],
                                                        compute.times, result.num_tensors, result.num_cores,
                                                        communication.overlap, options_.buckets());
      result.checks.push_back({count_, communication, predicted, median_with_interval(seconds)});
    }
    if (count_ == 2) result.conversion_seconds_per_byte = conversion_seconds_per_byte();
  }

 private:
  std::string compression(bool compressed) const { return compressed ? options_.compression : "none"; }

  void measure_exchanges(ExchangeSeries& series) {
    for (size_t i = 0; i < options_.exchange_bytes.size(); ++i) {
      const int64_t bytes = options_.exchange_bytes[i];
      series.samples[i].push_back(series.jobs->run(bytes, repetitions_of(bytes)));
    }
  }

  void forget() {
    for (auto& series : compute_) series.samples.clear();
    for (auto& series : training_) series.seconds.clear();
    for (auto& series : exchanges_) {
      for (auto& samples : series.samples) samples.clear();
    }
  }

  static std::vector<ExchangeSample> medians_of(const ExchangeSeries& series) {
    std::vector<ExchangeSample> medians;
    for (const auto& samples : series.samples) {
      medians.push_back({samples.front().bytes,
                         median_of(samples, [](const ExchangeSample& sample) { return sample.seconds; }),
                         // A process's CPU clock may be coarser than a small exchange.
                         std::max(1e-9, median_of(samples, [](const ExchangeSample& sample) {
                                    return sample.cpu_seconds;
                                  }))});
    }
    return medians;
  }

  double conversion_seconds_per_byte() {
    const int64_t bytes = options_.exchange_bytes.back();
    Series seconds;
    for (int round = 0; round < options_.num_rounds; ++round)
      seconds.push_back(exchanges_[1].jobs->conversion_seconds(bytes, repetitions_of(bytes)));
    return median(seconds) / static_cast<double>(bytes);
  }

  const ScalingOptions& options_;
  const int count_;
  ComputeJobs compute_jobs_;
  std::vector<ComputeSeries> compute_;
  std::vector<TrainingSeries> training_;
  std::vector<ExchangeSeries> exchanges_;
};

}  // namespace

MeasuredScaling measure_scaling(const ScalingOptions& options) {
  MeasuredScaling result;
  for (const int count : options.processes) {
    std::cerr << "==> " << count << (count == 1 ? " process" : " processes") << '\n';
    Processes processes(options, count);
    processes.measure();
    processes.add_to(result);
  }
  return result;
}

}  // namespace lockstep::benchmarks
