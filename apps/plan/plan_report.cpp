#include "lockstep/apps/plan/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/apps/plan/plan_ranking.h"
#include "lockstep/apps/plan/plan_text.h"
#include "lockstep/apps/plan/training_command.h"
#include "lockstep/apps/shared/planning/layout_flags.h"
#include "lockstep/apps/shared/planning/quantity.h"

namespace lockstep::apps {
namespace {

constexpr size_t kMostWidth = 100;  // of a line
constexpr char kTied = '\x1f';      // a space at which no line ends

std::string count_text(double count) {
  if (count >= 1e9) return fmt::format("{:.3g} billion", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.3g} million", count / 1e6);
  return fmt::format("{}", static_cast<int64_t>(count));
}

std::string model_text(const PlanOptions& options) {
  switch (options.program) {
    case PlannedProgram::kTrainGpt:
      return fmt::format("{} layers of {}, sequences of {} tokens", options.model.num_layers,
                         options.model.width, options.sequence_length);
    case PlannedProgram::kTrainImages:
      return fmt::format("{}, images of {} x {} pixels, {} classes", options.model_name,
                         options.images.image_size, options.images.image_size, options.classes);
    case PlannedProgram::kTrainCtr:
      break;
  }
  return fmt::format("{}, a table of {} x {}", options.model_name, options.clicks.table_rows,
                     options.clicks.embedding_dim);
}

std::string head_text(const PlanOptions& options, const PlannedModel& model, const LayoutSearch& search) {
  const auto& cluster = options.cluster;
  const bool is_gpt = options.program == PlannedProgram::kTrainGpt;
  std::string text = fmt::format(
      "model     {} parameters, {}, {}\n"
      "step      {} {}{}\n",
      count_text(model.elements()), model_text(options), options.precision, options.training.global_batch,
      examples_name(options), is_gpt ? fmt::format(", {} tokens", count_text(tokens_per_step(options))) : "");
  const int64_t machines = cluster.machines();
  text += fmt::format("devices   {}{}, each with {} for the training and {:.3g} TFLOP/s\n", cluster.devices,
                      options.is_here ? " of this machine"
                                      : fmt::format(" on {} machine{}", machines, machines == 1 ? "" : "s"),
                      gibibytes_text(cluster.memory_bytes), cluster.flops_per_second / 1e12);
  text += options.is_here ? "rates     measured just now\n"
                          : "rates     given by flags: this plan is arithmetic, nothing of it was measured\n";
  return text + fmt::format("layouts   {} tried in {}, {} fit\n", search.num_candidates,
                            seconds_of(options.search_seconds), search.num_fit);
}

template <typename Text>
std::string parts_text(const std::vector<std::pair<std::string, double>>& parts, const Text& text) {
  auto sorted = parts;
  std::erase_if(sorted, [](const auto& part) { return part.second <= 0; });
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> words;
  words.reserve(sorted.size());
  for (const auto& [name, value] : sorted) {
    auto& word = words.emplace_back(name + " " + text(value));
    std::replace(word.begin(), word.end(), ' ', kTied);
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

/// Breaks a text at spaces, behind `first` on the first line; the other lines are indented as far.
std::string wrapped(const std::string& first, const std::string& text, size_t indent) {
  std::string lines, line = first;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (line.size() > indent && line.size() + 1 + word.size() > kMostWidth) {
      lines += line + "\n";
      line = std::string(indent, ' ') + word;
    } else {
      line += (line.empty() || line.back() == ' ' ? "" : " ") + word;
    }
    begin = end + 1;
  }
  lines += line + "\n";
  std::replace(lines.begin(), lines.end(), kTied, ' ');
  return lines;
}

/// Returns a command that can be copied, in lines that end with a backslash. Flags stay with their values.
std::string command_text(std::string command) {
  for (size_t i = 0; i + 1 < command.size(); ++i)
    if (command[i] == ' ' && command[i + 1] != '-') command[i] = kTied;
  std::string text = wrapped("  ", command, 4);
  text.pop_back();
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 3))
    text.replace(at, 1, " \\\n");
  return text + "\n";
}

/// Returns where the command is to be run.
std::string where_text(const PlanOptions& options, const PlannedLayout& layout) {
  const int64_t machines = options.cluster.machines();
  if (machines == 1) return "";
  if (layout.servers > 0)
    return fmt::format(
        ", as each task of a cluster of a chief, {} workers and {} ps (docs/cluster.md says how)",
        layout.data, layout.servers);
  return fmt::format(", on each of the {} machines (docs/cluster.md says how)", machines);
}

std::string best_text(const PlanOptions& options, const LayoutPlanner& planner, const PlannedChoice& best) {
  constexpr size_t kIndent = 10;
  std::string text = "\nThe fastest, by part\n";
  if (best.layout.servers == 0) {
    text += wrapped("  memory  ", parts_text(memory_parts(best.memory), gibibytes_text), kIndent);
  } else {
    const auto ranks = planner.memory_of_ranks(best.layout);
    text += wrapped("  replica ", parts_text(memory_parts(ranks.front()), gibibytes_text), kIndent) +
            wrapped("  server  ", parts_text(memory_parts(ranks.back()), gibibytes_text), kIndent);
  }
  return text + wrapped("  time    ", parts_text(time_parts(best.time), seconds_of), kIndent) +
         fmt::format("\nRun it{}:\n", where_text(options, best.layout)) +
         command_text(training_command(options, best.layout));
}

/// Returns which part needs most.
std::string largest_part(const LayoutMemory& memory) {
  const auto parts = memory_parts(memory);
  const auto& [name, bytes] = *std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} {}", name, gibibytes_text(bytes));
}

std::string layout_text(const PlanOptions& options, const PlannedLayout& layout) {
  if (options.program == PlannedProgram::kTrainCtr)
    return fmt::format("tables {}, {} replica{}", placement_text(layout), layout.data,
                       layout.data == 1 ? "" : "s");
  std::string text =
      fmt::format("{}, sharding {}, {} x {}", layout.mesh(), layout.stage, layout.micro_batches,
                  micro_batch_size(options.training.global_batch, layout));
  if (layout.pipeline > 1) text += ", " + schedule_of(layout);
  return text + (layout.recomputes ? ", recomputing" : "");
}

std::string unfit_text(const PlanOptions& options, const LayoutSearch& search) {
  if (search.unfit.empty()) return "";
  std::string text = fmt::format("\nThe fastest of those that do not fit into {}\n",
                                 gibibytes_text(options.cluster.memory_bytes));
  for (const auto& unfit : search.unfit) {
    text += wrapped(
        "  ",
        fmt::format("{}: at least {}, but needs {}, most of it for {}{}", layout_text(options, unfit.layout),
                    seconds_of(unfit.least_seconds), gibibytes_text(unfit.memory.peak()),
                    largest_part(unfit.memory),
                    unfit.change ? fmt::format(". It fits with {}",
                                               changed_flags(options.program, options.training.global_batch,
                                                             unfit.layout, *unfit.change))
                                 : ""),
        4);
  }
  return text;
}

std::string nothing_fits_text(const PlanOptions& options, const LayoutSearch& search) {
  if (!search.smallest)
    return "\nNo layout: the devices, the batch and the model's sizes do not go together.\n";
  const auto& smallest = *search.smallest;
  const std::string advice =
      options.program == PlannedProgram::kTrainCtr && options.cluster.server_memory_bytes == 0
          ? "More devices that are servers, or --server-memory of machines, have room for larger tables."
          : fmt::format("More devices, or fewer {} in a step, need less.", examples_name(options));
  return "\n" +
         wrapped("",
                 fmt::format("No layout fits. The one that needs least is {}: {} on each device, most of it "
                             "for {}. {}",
                             layout_text(options, smallest.layout), gibibytes_text(smallest.memory.peak()),
                             largest_part(smallest.memory), advice),
                 0);
}

}  // namespace

std::vector<std::pair<std::string, double>> memory_parts(const LayoutMemory& memory) {
  return {{"parameters", memory.parameters},
          {"gradients", memory.gradients},
          {"optimizer", memory.optimizer_state},
          {"activations", memory.activations},
          {"buckets", memory.buckets},
          {"gathered units", memory.gathered_units},
          {"communication", memory.communication},
          {"inputs", memory.inputs},
          {"tables", memory.tables},
          {"state of tables", memory.table_state},
          {"looked-up rows", memory.rows}};
}

std::vector<std::pair<std::string, double>> time_parts(const LayoutTime& time) {
  return {{"operators", time.operators},
          {"recomputation", time.recomputation},
          {"sums of cut layers", time.cut_layers},
          {"keys and values", time.sequences},
          {"tokens to experts", time.experts},
          {"gathered units", time.units},
          {"sums of gradients", time.sums},
          {"optimizer", time.optimizer},
          {"stepped parameters", time.gathers},
          {"bubble", time.bubble},
          {"input", time.input},
          {"rows of tables", time.rows}};
}

std::string plan_report(const PlanOptions& options, const LayoutPlanner& planner,
                        const LayoutSearch& search) {
  std::string text = head_text(options, planner.model(), search);
  if (search.ranked.empty()) return text + nothing_fits_text(options, search);
  return text + ranking_text(options, planner, search) + best_text(options, planner, search.ranked.front()) +
         unfit_text(options, search);
}

}  // namespace lockstep::apps
