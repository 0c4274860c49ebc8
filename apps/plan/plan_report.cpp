#include "lockstep/apps/plan/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/apps/plan/training_command.h"
#include "lockstep/apps/shared/planning/layout_flags.h"
#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/models/gpt/gpt_flops.h"

namespace lockstep::apps {
namespace {

constexpr size_t kMostWidth = 100;  // of a line

std::string count_text(double count) {
  if (count >= 1e9) return fmt::format("{:.3g} billion", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.3g} million", count / 1e6);
  return fmt::format("{}", static_cast<int64_t>(count));
}

std::string seconds_of(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

std::string schedule_of(const PlannedLayout& layout) {
  if (layout.pipeline == 1) return "-";
  return layout.schedule == "interleaved" ? fmt::format("{} x{}", layout.schedule, layout.stages_per_rank)
                                          : layout.schedule;
}

double tokens_per_step(const PlanOptions& options) {
  return static_cast<double>(options.training.global_batch * options.sequence_length);
}

/// Aligns columns: the first ones to the left, and those of numbers to the right.
std::string aligned(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& is_number) {
  std::vector<size_t> widths(is_number.size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += "  " + (is_number[i] ? fmt::format("{:>{}}", row[i], widths[i])
                                   : fmt::format("{:<{}}", row[i], widths[i]));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string head_text(const PlanOptions& options, const LayoutSearch& search) {
  const auto& model = options.model;
  const auto& cluster = options.cluster;
  const double parameters = planned_gpt(model, options.sequence_length, options.numbers).elements();
  std::string text = fmt::format(
      "model     {} parameters, {} layers of {}, sequences of {} tokens, {}\n"
      "step      {} sequences, {} tokens\n",
      count_text(parameters), model.num_layers, model.width, options.sequence_length, options.precision,
      options.training.global_batch, count_text(tokens_per_step(options)));
  const int64_t machines = cluster.devices / cluster.devices_per_machine;
  text += fmt::format("devices   {}{}, each with {} for the training and {:.3g} TFLOP/s\n", cluster.devices,
                      options.is_here ? " of this machine"
                                      : fmt::format(" on {} machine{}", machines, machines == 1 ? "" : "s"),
                      gibibytes_text(cluster.memory_bytes), cluster.flops_per_second / 1e12);
  text += options.is_here ? "rates     measured just now\n"
                          : "rates     given by flags: this plan is arithmetic, nothing of it was measured\n";
  return text + fmt::format("layouts   {} tried in {}, {} fit\n", search.num_candidates,
                            seconds_of(options.search_seconds), search.num_fit);
}

std::string ranking_text(const PlanOptions& options, const LayoutSearch& search) {
  std::vector<std::vector<std::string>> rows{{"#", "mesh", "sharding", "micro-batches", "schedule",
                                              "recompute", "memory", "step", "tokens/s", "TFLOP/s"}};
  const double flops = gpt_training_flops(options.model, options.sequence_length) * tokens_per_step(options) /
                       static_cast<double>(options.cluster.devices);
  for (size_t i = 0; i < search.ranked.size(); ++i) {
    const auto& [layout, memory, time] = search.ranked[i];
    rows.push_back({fmt::format("{}", i + 1), layout.mesh(), fmt::format("{}", layout.stage),
                    fmt::format("{} x {}", layout.micro_batches,
                                micro_batch_size(options.training.global_batch, layout)),
                    schedule_of(layout), layout.recomputes ? "blocks" : "-", gibibytes_text(memory.peak()),
                    seconds_of(time.seconds()),
                    fmt::format("{:.3g}", tokens_per_step(options) / time.seconds()),
                    fmt::format("{:.3g}", flops / time.seconds() / 1e12)});
  }
  return "\n" + aligned(rows, {true, false, true, true, false, false, true, true, true, true}) +
         "\nTFLOP/s are the model's operations on each device; what is computed twice counts once.\n";
}

template <typename Text>
std::string parts_text(const std::vector<std::pair<std::string, double>>& parts, const Text& text) {
  auto sorted = parts;
  std::erase_if(sorted, [](const auto& part) { return part.second <= 0; });
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> words;
  words.reserve(sorted.size());
  for (const auto& [name, value] : sorted) words.push_back(name + " " + text(value));
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
  return lines + line + "\n";
}

/// Returns a command that can be copied, in lines that end with a backslash.
std::string command_text(const std::string& command) {
  std::string text = wrapped("  ", command, 4);
  text.pop_back();
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 3))
    text.replace(at, 1, " \\\n");
  return text + "\n";
}

std::string best_text(const PlanOptions& options, const PlannedChoice& best) {
  constexpr size_t kIndent = 10;
  const int64_t machines = options.cluster.devices / options.cluster.devices_per_machine;
  const std::string where =
      machines == 1 ? "" : fmt::format(", on each of the {} machines (docs/cluster.md says how)", machines);
  return "\nThe fastest, by part\n" +
         wrapped("  memory  ", parts_text(memory_parts(best.memory), gibibytes_text), kIndent) +
         wrapped("  time    ", parts_text(time_parts(best.time), seconds_of), kIndent) +
         fmt::format("\nRun it{}:\n", where) +
         command_text("train_gpt " + training_flags(options, best.layout));
}

/// Returns which part needs most.
std::string largest_part(const LayoutMemory& memory) {
  const auto parts = memory_parts(memory);
  const auto& [name, bytes] = *std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} {}", name, gibibytes_text(bytes));
}

std::string layout_text(const PlanOptions& options, const PlannedLayout& layout) {
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
        fmt::format(
            "{}: at least {}, but needs {}, most of it for {}{}", layout_text(options, unfit.layout),
            seconds_of(unfit.least_seconds), gibibytes_text(unfit.memory.peak()), largest_part(unfit.memory),
            unfit.change ? fmt::format(". It fits with {}", changed_flags(options.training.global_batch,
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
  return "\n" +
         wrapped("",
                 fmt::format("No layout fits. The one that needs least is {}: {} on each device, most of it "
                             "for {}. More devices, or fewer sequences in a step, need less.",
                             layout_text(options, smallest.layout), gibibytes_text(smallest.memory.peak()),
                             largest_part(smallest.memory)),
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
          {"inputs", memory.inputs}};
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
          {"input", time.input}};
}

std::string plan_report(const PlanOptions& options, const LayoutSearch& search) {
  std::string text = head_text(options, search);
  if (search.ranked.empty()) return text + nothing_fits_text(options, search);
  return text + ranking_text(options, search) + best_text(options, search.ranked.front()) +
         unfit_text(options, search);
}

}  // namespace lockstep::apps
