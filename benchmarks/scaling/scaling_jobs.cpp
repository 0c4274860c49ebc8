#include "lockstep/benchmarks/scaling/scaling_jobs.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "lockstep/benchmarks/jobs.h"

namespace lockstep::benchmarks {
namespace {

constexpr std::chrono::seconds kJobTimeout{300};

/// Returns a job by name, for `num_processes` processes that each have a batch of options.batch_size.
Command scaling_job(const ScalingOptions& options, const char* name, int num_processes) {
  Command job = own_job(name, options.workload(options.batch_size * num_processes), num_processes);
  if (options.bucket_bytes) {
    job.arguments.insert(job.arguments.end(), {"--bucket-bytes", std::to_string(*options.bucket_bytes)});
  }
  return job;
}

Command with_compression(Command job, const std::string& compression) {
  job.arguments.insert(job.arguments.end(), {"--gradient-compression", compression});
  return job;
}

Command with_overlap(Command job, Overlap overlap) {
  if (overlap == Overlap::kNone) job.arguments.emplace_back("--no-overlap");
  return job;
}

Command with_kind(Command job, const ExchangeKind& kind) {
  if (kind.algorithm) {
    job.arguments.emplace_back("--exchange-algorithm");
    job.arguments.push_back(to_string(*kind.algorithm));
  }
  if (kind.uses_tcp) job.arguments.emplace_back("--tcp");
  return job;
}

std::vector<double> read_numbers(ChildProcess& process, size_t least) {
  const std::string line = process.read_line(kJobTimeout);
  std::istringstream stream(line);
  std::vector<double> numbers;
  for (double number = 0; stream >> number;) numbers.push_back(number);
  if (stream.eof() && numbers.size() >= least) return numbers;
  throw std::runtime_error("[benchmark] expected at least " + std::to_string(least) +
                           " numbers from a job, but got '" + line + "'");
}

/// Returns the text after "ready".
std::string wait_until_ready(ChildProcess& process) {
  const std::string line = process.read_line(kJobTimeout);
  const std::string ready = "ready";
  if (line.compare(0, ready.size(), ready) == 0) return line.substr(ready.size());
  throw std::runtime_error("[benchmark] expected 'ready' from a job, but got '" + line + "'");
}

std::string request_of(int64_t first, int64_t second) {
  return std::to_string(first) + ' ' + std::to_string(second);
}

}  // namespace

ComputeJobs::ComputeJobs(const ScalingOptions& options, int num_processes) {
  const Command job = scaling_job(options, "compute", num_processes);
  for (int i = 0; i < num_processes; ++i) processes_.push_back(std::make_unique<ChildProcess>(job));
  for (auto& process : processes_)
    std::istringstream(wait_until_ready(*process)) >> num_parameters_ >> num_tensors_;
}

ComputeSample ComputeJobs::run(int steps, int64_t num_examples) {
  for (auto& process : processes_) process->write_line(request_of(steps, num_examples));
  ComputeSample sum;
  const auto count = static_cast<double>(processes_.size());
  const auto first_gradient = 4 + static_cast<size_t>(steps);
  std::vector<double> slowest(static_cast<size_t>(steps));
  for (auto& process : processes_) {
    const auto numbers = read_numbers(*process, first_gradient);
    sum.times.forward_seconds += numbers[0] / count;
    sum.times.backward_seconds += numbers[1] / count;
    sum.times.optimizer_seconds += numbers[2] / count;
    sum.copy_seconds += numbers[3] / count;
    for (size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], numbers[4 + i]);
    sum.times.gradients.resize((numbers.size() - first_gradient) / 2);
    for (size_t i = 0; i < sum.times.gradients.size(); ++i) {
      sum.times.gradients[i].bytes = numbers[first_gradient + 2 * i];
      sum.times.gradients[i].ready_seconds += numbers[first_gradient + 2 * i + 1] / count;
    }
  }
  if (processes_.size() <= std::thread::hardware_concurrency()) {
    const double slowest_mean = std::accumulate(slowest.begin(), slowest.end(), 0.0) / steps;
    sum.times.waiting_seconds = std::max(0.0, slowest_mean - sum.times.seconds());
  }
  return sum;
}

ExchangeJobs::ExchangeJobs(const ScalingOptions& options, int num_processes, const std::string& compression,
                           const ExchangeKind& kind)
    : first_(
          with_kind(with_compression(scaling_job(options, "exchanges", num_processes), compression), kind)) {
  wait_until_ready(first_);
}

ExchangeSample ExchangeJobs::run(int64_t bytes, int repetitions) {
  first_.write_line(request_of(bytes, repetitions));
  const auto numbers = read_numbers(first_, 2);
  return {static_cast<double>(bytes), numbers[0], numbers[1]};
}

double ExchangeJobs::conversion_seconds(int64_t bytes, int repetitions) {
  first_.write_line("convert " + request_of(bytes, repetitions));
  return read_numbers(first_, 1)[0];
}

TrainingJobs::TrainingJobs(const ScalingOptions& options, int num_processes, const std::string& compression,
                           Overlap overlap)
    : first_(with_overlap(with_compression(scaling_job(options, "workers", num_processes), compression),
                          overlap)) {
  wait_until_ready(first_);
}

double TrainingJobs::run(int steps) {
  first_.write_line(std::to_string(steps));
  return read_numbers(first_, 1)[0] / steps;
}

}  // namespace lockstep::benchmarks
