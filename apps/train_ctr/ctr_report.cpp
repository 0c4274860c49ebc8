#include "lockstep/apps/train_ctr/ctr_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace lockstep::apps {
namespace {

/// Groups digits as in 12,345,678.
std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (auto place = static_cast<int>(digits.size()) - 3; place > 0; place -= 3)
    digits.insert(static_cast<size_t>(place), 1, ',');
  return digits;
}

std::string grouped(int64_t value) {
  return grouped(static_cast<double>(value));
}

std::string line(const std::string& name, const std::string& value) {
  return fmt::format("{:<17}{}\n", name, value);
}

constexpr double kSecondsOfDay = 86'400;

std::string speed_text(const CtrResult& result) {
  const double speed = result.seconds > 0 ? static_cast<double>(result.rows) / result.seconds : 0;
  return fmt::format("{} ({:.0f} million a day), {} steps in {:.1f} s", grouped(speed),
                     speed * kSecondsOfDay / 1e6, grouped(result.steps), result.seconds);
}

/// The count of a range of values. Larger values are binned by powers of two, since long tails have many.
struct Bin {
  uint64_t least = 0;
  uint64_t most = 0;
  int64_t count = 0;
};

std::vector<Bin> bins_of(const std::map<uint64_t, int64_t>& counts) {
  constexpr uint64_t kSingle = 8;
  std::vector<Bin> bins;
  for (const auto& [value, count] : counts) {
    Bin bin{value, value, 0};
    if (value >= kSingle) {
      bin.least = std::bit_floor(value);
      bin.most = 2 * bin.least - 1;
    }
    if (bins.empty() || bins.back().least != bin.least) bins.push_back(bin);
    bins.back().count += count;
  }
  return bins;
}

std::string serving_text(const CtrServing& serving) {
  constexpr double kLongestBar = 40;
  int64_t updates = 0, most = 0;
  double sum = 0;
  const auto bins = bins_of(serving.staleness);
  for (const auto& [value, count] : serving.staleness) {
    updates += count;
    sum += static_cast<double>(value) * static_cast<double>(count);
  }
  for (const auto& bin : bins) most = std::max(most, bin.count);
  std::string text = line(
      "updates", fmt::format("{} applied, {} repeats ignored, {} dropped as a server had lost their values",
                             grouped(updates), grouped(serving.num_repeated), grouped(serving.num_outdated)));
  const double total = serving.computing + serving.waiting + serving.idle;
  const auto share = [&](double seconds) { return total > 0 ? 100 * seconds / total : 0; };
  text += line("workers",
               fmt::format("{:.0f} % of their time computing, {:.0f} % waiting for batches and servers, "
                           "{:.0f} % without a step; {} lost",
                           share(serving.computing), share(serving.waiting), share(serving.idle),
                           serving.num_lost_workers));
  if (updates == 0) return text;
  text +=
      line("staleness", fmt::format("{:.2f} on average, {} at most: how many updates by how many others came "
                                    "between",
                                    sum / static_cast<double>(updates), serving.staleness.rbegin()->first));
  for (const auto& bin : bins) {
    const auto range =
        bin.least == bin.most ? fmt::format("{}", bin.least) : fmt::format("{}-{}", bin.least, bin.most);
    const auto width = static_cast<size_t>(
        std::ceil(kLongestBar * static_cast<double>(bin.count) / static_cast<double>(most)));
    text += fmt::format("{:>15}  {:<40} {}\n", range, std::string(width, '#'), grouped(bin.count));
  }
  return text;
}

}  // namespace

std::string ctr_configuration_text(const CtrOptions& options, const CtrFacts& facts) {
  std::string text = line("data", facts.data);
  if (facts.num_malformed > 0)
    text += line("malformed rows", fmt::format("{} skipped, the first in {}", grouped(facts.num_malformed),
                                               facts.first_malformed));
  text += line("rows", fmt::format("{} to train on, {} to test on", grouped(facts.num_train),
                                   grouped(facts.num_test)));
  text += line("model", fmt::format("{}, {} rows of {} columns{}, {}", ctr_model_name(options.model),
                                    options.table_memory.empty() ? grouped(options.table_rows) : "growing",
                                    options.embedding_dim,
                                    options.model == CtrModelKind::kWideDeep ? " and as many weights" : "",
                                    ctr_precision_name(options.precision)));
  if (!options.table_memory.empty())
    text += line("table memory", fmt::format("{}, of all servers together", options.table_memory));
  if (!options.table_disk.empty()) text += line("table disk", options.table_disk);
  if (options.min_frequency > 1 || options.steps_to_live > 0)
    text += line("row filter",
                 fmt::format("from update {} on{}", std::max<int64_t>(1, options.min_frequency),
                             options.steps_to_live > 0 ? fmt::format(", forgotten after {} steps without",
                                                                     grouped(options.steps_to_live))
                                                       : ""));
  text += line("optimizer", fmt::format("{}, learning rate {}", ctr_optimizer_name(options.optimizer),
                                        options.learning_rate));
  text += line("strategy", facts.strategy);
  text += line("replicas", facts.replicas);
  text += line(
      "steps",
      fmt::format("{} of {} rows{}", grouped(options.steps), grouped(options.global_batch_size),
                  facts.first_step > 0 ? fmt::format(", from step {} on", grouped(facts.first_step)) : ""));
  text += line("seed", fmt::format("{}", options.seed));
  if (!options.run_dir.empty()) text += line("recorded in", options.run_dir);
  if (!options.mlflow_dir.empty()) text += line("MLflow's store", options.mlflow_dir);
  if (!options.backup_dir.empty())
    text += line("saved in", fmt::format("{}, every {}", options.backup_dir, options.save_every));
  return text;
}

std::string ctr_progress_text(int64_t step, int64_t steps, double loss, double rows_per_second) {
  return fmt::format("step {}/{}  loss {:.4f}  {} rows/s", step, steps, loss, grouped(rows_per_second));
}

std::string ctr_scores_text(const CtrScores& scores) {
  return fmt::format("AUC {:.4f}, log loss {:.4f}", scores.auc, scores.log_loss);
}

std::string ctr_result_text(const CtrResult& result, const CtrFacts& facts) {
  std::string text =
      line("test",
           fmt::format("{} on {} rows{}", ctr_scores_text(result.scores), grouped(facts.num_test),
                       result.best ? "; the best that there can be: " + ctr_scores_text(*result.best) : ""));
  text += line("rows/s", speed_text(result));
  if (result.serving) text += serving_text(*result.serving);
  return text;
}

}  // namespace lockstep::apps
