#include "lockstep/benchmarks/reliability/backup_job_options.h"

#include <cxxopts.hpp>
#include <stdexcept>

namespace lockstep::benchmarks {

BackupJobOptions parse_backup_job(int argc, char** argv) {
  cxxopts::Options flags("backup_job",
                         "One worker of a training that is backed up, for reliability_benchmark.py.");
  const auto number = [] { return cxxopts::value<int64_t>(); };
  // clang-format off
  flags.add_options()
    ("backup-dir", "where checkpoints lie", cxxopts::value<std::string>())
    ("steps", "of the training, or of a block", number())
    ("save-every", "steps between checkpoints", number()->default_value("0"))
    ("blocks", "measures so many blocks of each kind of saving instead", number()->default_value("0"))
    ("global-batch-size", "images in a step, over all workers", number()->default_value("64"))
    ("image-size", "height and width in pixels", number()->default_value("64"));
  // clang-format on
  const auto given = flags.parse(argc, argv);
  BackupJobOptions options;
  options.folder = given["backup-dir"].as<std::string>();
  options.steps = static_cast<int>(given["steps"].as<int64_t>());
  options.save_every = static_cast<int>(given["save-every"].as<int64_t>());
  options.blocks = static_cast<int>(given["blocks"].as<int64_t>());
  options.workload.global_batch_size = given["global-batch-size"].as<int64_t>();
  options.workload.image_size = given["image-size"].as<int64_t>();
  if (options.blocks == 0 && options.save_every < 1)
    throw std::invalid_argument("--save-every: expected 1 or more without --blocks");
  return options;
}

}  // namespace lockstep::benchmarks
