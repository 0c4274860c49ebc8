#include "lockstep/benchmarks/scaling/scaling_options.h"

#include <algorithm>
#include <cxxopts.hpp>
#include <iostream>
#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

constexpr int64_t kKibibyte = 1 << 10;

using Strings = std::vector<std::string>;

cxxopts::Options describe_scaling_flags() {
  const ScalingOptions defaults;
  const auto number = [](int64_t value) {
    return cxxopts::value<int64_t>()->default_value(std::to_string(value));
  };
  const auto text = [](const char* value) { return cxxopts::value<std::string>()->default_value(value); };
  cxxopts::Options flags("scaling_benchmark",
                         "Measures compute, and the exchanges between processes, of this machine; predicts "
                         "the time of a training "
                         "step for up to 1024 workers; checks the prediction with worker processes on this "
                         "machine; and prints all "
                         "of it as Markdown.");
  // clang-format off
  flags.add_options("What is modelled")
    ("batch-size", "images of each worker in a step", number(defaults.batch_size))
    ("strong-batch-size", "images of all workers together, for the table of strong scaling", number(defaults.strong_batch_size))
    ("image-size", "height and width in pixels", number(defaults.image_size))
    ("bucket-mebibytes", "gradient buckets of this size, but for the first one (default: chosen by the library)", cxxopts::value<int64_t>())
    ("compression", "of the rows with compression: float16 or bfloat16", text("float16"))
    ("links", "links between machines, in Gbit/s, and their latency in microseconds", cxxopts::value<Strings>()->default_value("1:50,10:25,25:15,100:5,400:3"));
  flags.add_options("How it is checked")
    ("processes", "numbers of worker processes on this machine; with 1 and 2", cxxopts::value<std::vector<int>>()->default_value("1,2,4"))
    ("exchange-kibibytes", "gradients whose exchange is timed; at least two sizes", cxxopts::value<std::vector<int>>()->default_value("4,256,1024,4096,8192"))
    ("rounds", "of all measurements in turn; at least 6", number(defaults.num_rounds))
    ("steps", "training steps of one measurement", number(defaults.steps));
  flags.add_options("Machines with GPUs, of which all is assumed")
    ("machines", "of the cluster", number(defaults.gpu_cluster.topology.num_machines))
    ("gpus", "of each machine", number(defaults.gpu_cluster.topology.replicas_each))
    ("gpu-milliseconds", "a step's compute on one GPU", cxxopts::value<double>()->default_value("200"))
    ("gpu-gradient-megabytes", "gradients of a step", cxxopts::value<double>()->default_value("102.4"))
    ("gpu-link", "between two GPUs of a machine, as --links", text("100:10"))
    ("machine-link", "between two machines, as --links", text("10:25"));
  flags.add_options("Other")
    ("json", "write the results to this file as JSON, too", text(""))
    ("help", "print this");
  flags.add_options("Jobs")  // of another scaling_benchmark; not in --help
    ("serve", "", text(""))
    ("replicas", "", number(1))
    ("global-batch-size", "", number(1))
    ("bucket-bytes", "", cxxopts::value<int64_t>())
    ("gradient-compression", "", text("none"))
    ("exchange-algorithm", "", text("auto"))
    ("tcp", "")
    ("no-overlap", "");
  // clang-format on
  return flags;
}

std::invalid_argument flag_error(const std::string& flag, const std::string& expected,
                                 const std::string& given) {
  return std::invalid_argument("--" + flag + ": expected " + expected + ", but got " + given);
}

template <typename T>
T no_less(const cxxopts::ParseResult& flags, const char* name, T least) {
  const auto value = flags[name].as<T>();
  if (value >= least) return value;
  throw flag_error(name, "at least " + std::to_string(least), std::to_string(value));
}

double positive(const cxxopts::ParseResult& flags, const char* name) {
  const auto value = flags[name].as<double>();
  if (value > 0) return value;
  throw flag_error(name, "a positive number", std::to_string(value));
}

NamedLink link_of(const char* flag, const std::string& text) {
  try {
    return parse_link(text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("--" + std::string(flag) + ": " + error.what());
  }
}

std::string joined(const std::vector<int>& values) {
  std::string text;
  for (const int value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

std::vector<int> parse_processes(const cxxopts::ParseResult& flags) {
  auto given = flags["processes"].as<std::vector<int>>();
  const bool ascends = std::adjacent_find(given.begin(), given.end(), std::greater_equal<>()) == given.end();
  if (!ascends || given.size() < 2 || given[0] != 1 || given[1] != 2)
    throw flag_error("processes", "ascending numbers that begin with 1,2", joined(given));
  return given;
}

std::vector<int64_t> parse_exchange_bytes(const cxxopts::ParseResult& flags) {
  std::vector<int64_t> bytes;
  const auto given = flags["exchange-kibibytes"].as<std::vector<int>>();
  for (const int kibibytes : given) {
    if (kibibytes < 1) throw flag_error("exchange-kibibytes", "positive sizes", joined(given));
    bytes.push_back(kibibytes * kKibibyte);
  }
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  if (*least == *most) throw flag_error("exchange-kibibytes", "at least two sizes", joined(given));
  return bytes;
}

GpuCluster parse_gpu_cluster(const cxxopts::ParseResult& flags) {
  GpuCluster cluster;
  cluster.topology.num_machines = static_cast<int>(no_less<int64_t>(flags, "machines", 1));
  cluster.topology.replicas_each = static_cast<int>(no_less<int64_t>(flags, "gpus", 1));
  cluster.topology.within = link_of("gpu-link", flags["gpu-link"].as<std::string>()).link;
  cluster.topology.between = link_of("machine-link", flags["machine-link"].as<std::string>()).link;
  cluster.compute_seconds = positive(flags, "gpu-milliseconds") * 1e-3;
  cluster.gradient_bytes = positive(flags, "gpu-gradient-megabytes") * 1e6;
  return cluster;
}

}  // namespace

Workload ScalingOptions::workload(int64_t global_batch_size) const {
  return {.image_size = image_size, .global_batch_size = global_batch_size};
}

std::optional<ScalingOptions> parse_scaling_options(int argc, char** argv) {
  auto description = describe_scaling_flags();
  const auto flags = description.parse(argc, argv);
  if (flags.count("help") > 0) {
    std::cout << description.help(
        {"What is modelled", "How it is checked", "Machines with GPUs, of which all is assumed", "Other"});
    return std::nullopt;
  }
  ScalingOptions options;
  options.image_size = no_less<int64_t>(flags, "image-size", 33);
  options.batch_size = no_less<int64_t>(flags, "batch-size", 2);
  options.strong_batch_size = no_less<int64_t>(flags, "strong-batch-size", 1);
  if (flags.count("bucket-mebibytes") > 0)
    options.bucket_bytes = no_less<int64_t>(flags, "bucket-mebibytes", 1) << 20;
  if (flags.count("bucket-bytes") > 0) options.bucket_bytes = no_less<int64_t>(flags, "bucket-bytes", 1);
  options.compression = flags["compression"].as<std::string>();
  if (options.compression != "float16" && options.compression != "bfloat16")
    throw flag_error("compression", "float16 or bfloat16", "'" + options.compression + "'");
  for (const auto& link : flags["links"].as<Strings>()) options.links.push_back(link_of("links", link));
  options.processes = parse_processes(flags);
  options.exchange_bytes = parse_exchange_bytes(flags);
  options.num_rounds = static_cast<int>(no_less<int64_t>(flags, "rounds", 6));
  options.steps = static_cast<int>(no_less<int64_t>(flags, "steps", 1));
  options.gpu_cluster = parse_gpu_cluster(flags);
  options.json = flags["json"].as<std::string>();
  options.serve = flags["serve"].as<std::string>();
  options.num_processes = static_cast<int>(no_less<int64_t>(flags, "replicas", 1));
  options.job_batch_size = no_less<int64_t>(flags, "global-batch-size", 1);
  options.job_compression = flags["gradient-compression"].as<std::string>();
  options.job_overlaps = flags.count("no-overlap") == 0;
  options.job_algorithm = flags["exchange-algorithm"].as<std::string>();
  options.job_uses_tcp = flags.count("tcp") > 0;
  return options;
}

}  // namespace lockstep::benchmarks
