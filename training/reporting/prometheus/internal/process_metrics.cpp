#include "lockstep/training/reporting/prometheus/internal/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace lockstep {
namespace {

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total_pages = 0, resident_pages = 0;
  file >> total_pages >> resident_pages;
  return static_cast<double>(resident_pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Returns when this process began, in seconds since 1970, as the kernel tells it: the time of the machine's
/// start, and the process's start in ticks since then.
double start_seconds() {
  std::ifstream machine("/proc/stat");
  double boot = 0;
  for (std::string word; machine >> word;) {
    if (word != "btime") continue;
    machine >> boot;
    break;
  }
  std::ifstream process("/proc/self/stat");
  std::string line;
  std::getline(process, line);
  // The program's name, in parentheses, may hold spaces.
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return boot;
  constexpr int kFieldsBetween = 19;  // from the state, the first after the name, to the start
  size_t at = name_end + 1;
  for (int i = 0; i < kFieldsBetween && at != std::string::npos; ++i) at = line.find(' ', at + 1);
  if (at == std::string::npos) return boot;
  const auto ticks = static_cast<double>(std::strtoull(line.c_str() + at, nullptr, 10));
  return boot + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

ProcessMetrics::ProcessMetrics(const prometheus::Labels& labels) : start_seconds_(start_seconds()) {
  for (const auto& [name, value] : labels) labels_.push_back({name, value});
}

prometheus::MetricFamily ProcessMetrics::family(const char* name, const char* help,
                                                prometheus::MetricType type, double value) const {
  prometheus::ClientMetric metric;
  metric.label = labels_;
  metric.gauge.value = metric.counter.value = value;
  return {name, help, type, {metric}};
}

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  using prometheus::MetricType;
  return {family("process_resident_memory_bytes", "Resident memory size in bytes.", MetricType::Gauge,
                 resident_bytes()),
          family("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.",
                 MetricType::Counter, cpu_seconds()),
          family("process_start_time_seconds", "Start time of the process since unix epoch in seconds.",
                 MetricType::Gauge, start_seconds_)};
}

}  // namespace lockstep
