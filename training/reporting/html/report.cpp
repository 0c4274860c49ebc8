#include "lockstep/training/reporting/html/report.h"

#include <algorithm>
#include <cmath>

#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/base/internal/utc_text.h"
#include "lockstep/training/reporting/html/internal/heat_map.h"
#include "lockstep/training/reporting/html/internal/html_page.h"
#include "lockstep/training/reporting/html/internal/html_text.h"
#include "lockstep/training/reporting/html/internal/load_map.h"
#include "lockstep/training/reporting/html/internal/pipeline_chart.h"
#include "lockstep/training/reporting/html/internal/report_curves.h"
#include "lockstep/training/reporting/html/internal/report_texts.h"

namespace lockstep {
namespace {

using KeyFigures = std::vector<std::pair<std::string, std::string>>;

std::string counted(int64_t count, const std::string& one, const std::string& several) {
  return grouped_number(count) + " " + (count == 1 ? one : several);
}

std::string status_line(const RunTotals& totals) {
  std::string done =
      counted(totals.epochs, "epoch", "epochs") + ", " + counted(totals.steps, "step", "steps");
  if (totals.steps_before > 0)
    done += ", the last " + grouped_number(totals.steps - totals.steps_before) + " of them";
  if (totals.seconds >= 0) done += " in " + seconds_text(totals.seconds);
  if (totals.start_up_seconds > 0) done += ", after a start-up of " + seconds_text(totals.start_up_seconds);
  switch (totals.status) {
    case RunStatus::kCompleted:
      return "Completed: " + done;
    case RunStatus::kStoppedEarly:
      return "Stopped early after " + done;
    case RunStatus::kInterrupted:
      return "Interrupted after " + done;
    case RunStatus::kFailed:
      break;
  }
  return "Failed after " + done;
}

std::string hosts_text(const std::vector<std::string>& hosts) {
  constexpr size_t kMostNamed = 4;
  std::string text;
  for (size_t i = 0; i < std::min(hosts.size(), kMostNamed); ++i) text += (i == 0 ? "" : ", ") + hosts[i];
  if (hosts.size() <= kMostNamed) return text;
  return text + " and " +
         counted(static_cast<int64_t>(hosts.size() - kMostNamed), "other host", "other hosts");
}

/// Returns an empty string if nothing is known.
std::string start_line(const RunStart& start) {
  std::string line;
  if (start.time) line += " " + utc_text(*start.time, "%Y-%m-%d %H:%M:%S UTC");
  if (!start.hosts.empty()) line += " on " + hosts_text(start.hosts);
  if (!start.version.empty()) line += " with Lockstep " + start.version;
  return line.empty() ? "" : "Started" + line;
}

/// Returns the epoch with the best value of a member, or null if no epoch has a number there.
template <typename Better>
const EpochRecord* best_epoch(const RunRecord& record, std::optional<double> EpochRecord::*member,
                              Better is_better) {
  const EpochRecord* best = nullptr;
  for (const auto& epoch : record.epochs) {
    const auto& value = epoch.*member;
    if (!value || std::isnan(*value)) continue;
    if (best == nullptr || is_better(*value, *(best->*member))) best = &epoch;
  }
  return best;
}

std::optional<double> median_of(const RunRecord& record, std::optional<double> EpochRecord::*member) {
  std::vector<double> values;
  for (const auto& epoch : record.epochs) {
    const auto& value = epoch.*member;
    if (value && std::isfinite(*value)) values.push_back(*value);
  }
  if (values.empty()) return std::nullopt;
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle), values.end());
  return values[middle];
}

/// Returns a value of the last epoch by its name.
std::optional<double> last_other(const RunRecord& record, const std::string& name) {
  if (record.epochs.empty()) return std::nullopt;
  for (const auto& [other, value] : record.epochs.back().others) {
    if (other == name) return value;
  }
  return std::nullopt;
}

std::string rate_text(double images_per_second) {
  return images_per_second < 100 ? short_number(images_per_second, 3)
                                 : grouped_number(std::llround(images_per_second));
}

KeyFigures key_figures_of(const RunRecord& record) {
  KeyFigures figures;
  const auto in_epoch = [](const EpochRecord& epoch) {
    return " (epoch " + std::to_string(epoch.epoch) + ")";
  };
  if (const auto* best = best_epoch(record, &EpochRecord::validation_accuracy, std::greater<>())) {
    figures.emplace_back("Best validation accuracy" + in_epoch(*best),
                         percent_text(*best->validation_accuracy));
  } else if (const auto* trained = best_epoch(record, &EpochRecord::accuracy, std::greater<>())) {
    figures.emplace_back("Best training accuracy" + in_epoch(*trained), percent_text(*trained->accuracy));
  }
  if (const auto* best = best_epoch(record, &EpochRecord::validation_loss, std::less<>())) {
    figures.emplace_back("Lowest validation loss" + in_epoch(*best), short_number(*best->validation_loss));
    // The lowest one comes first.
    if (!record.reference_losses.empty()) {
      const auto& [name, loss] = record.reference_losses.front();
      const double above = *best->validation_loss - loss;
      figures.emplace_back((above < 0 ? "Below the " : "Above the ") + name,
                           short_number(std::abs(above), 2));
    }
  }
  if (!record.epochs.empty() && record.epochs.back().loss) {
    figures.emplace_back("Final training loss", short_number(*record.epochs.back().loss));
  }
  if (const auto rate = median_of(record, &EpochRecord::images_per_second)) {
    figures.emplace_back(capitalized(record.examples) + " a second", rate_text(*rate));
  }
  if (const auto utilization = last_other(record, "model_flop_utilization"))
    figures.emplace_back("Model FLOP utilization", percent_text(*utilization, 1));
  if (const auto share = median_of(record, &EpochRecord::data_wait_share)) {
    figures.emplace_back("Waiting for data", percent_text(*share, 1));
  }
  if (record.totals.images > 0)
    figures.emplace_back(capitalized(record.examples) + " trained on", grouped_number(record.totals.images));
  return figures;
}

void add_confusions(const RunRecord& record, HtmlPage& page) {
  if (!record.confusion) return;
  constexpr size_t kMostPairs = 10;
  const ConfusionCounts& matrix = *record.confusion;
  HtmlTable pairs{.columns = {{"True"}, {"Predicted"}, {"Examples", true}}};
  for (const auto& [true_class, predicted_class, count] : most_frequent_confusions(matrix, kMostPairs)) {
    pairs.rows.push_back(
        {matrix.class_names[true_class], matrix.class_names[predicted_class], grouped_number(count)});
  }
  const std::string table =
      pairs.rows.empty() ? "<p>No class was mistaken for another.</p>\n" : html_table(pairs);
  page.heading("Confused classes");
  page.figures({confusion_figure(matrix),
                "<figure class=\"chart\"><figcaption>Most frequent confusions</figcaption>\n" + table +
                    "</figure>\n"});
}

void add_misclassified(const RunRecord& record, HtmlPage& page) {
  const auto& total = record.num_misclassified;
  if (record.misclassified.empty() && !total) return;
  page.heading("Misclassified images");
  if (total && *total == 0) page.paragraph("None. The model classified every image correctly.");
  if (record.misclassified.empty()) {
    if (total && *total > 0) page.paragraph(counted(*total, "image was", "images were") + " misclassified.");
    return;
  }
  const auto num_shown = static_cast<int64_t>(record.misclassified.size());
  const std::string shown = total && *total > num_shown
                                ? grouped_number(num_shown) + " of " + grouped_number(*total) + " images"
                                : counted(num_shown, "image", "images");
  page.paragraph(shown + ", with the true class, the predicted class and its probability.");
  std::vector<HtmlPage::Picture> pictures;
  for (const auto& image : record.misclassified) {
    const std::string classes = image.true_class + " \u2192 " + image.predicted_class;
    pictures.push_back(
        {.png = image.png,
         .description = "true class " + image.true_class + ", predicted " + image.predicted_class,
         .first_line = classes,
         .second_line = percent_text(image.confidence, 1)});
  }
  page.pictures(pictures);
}

/// A column of the table of epochs.
struct EpochColumn {
  std::string name;
  std::optional<double> EpochRecord::*member = nullptr;
  std::string (*format)(double) = nullptr;
};

std::string number_cell(double value) {
  return short_number(value);
}

std::string share_cell(double share) {
  return percent_text(share);
}

/// Leaves out columns that were never measured.
std::vector<EpochColumn> epoch_columns(const RunRecord& record) {
  std::vector<EpochColumn> columns = {
      {"Loss", &EpochRecord::loss, number_cell},
      {"Accuracy", &EpochRecord::accuracy, share_cell},
      {"Validation loss", &EpochRecord::validation_loss, number_cell},
      {"Validation accuracy", &EpochRecord::validation_accuracy, share_cell},
      {"Learning rate", &EpochRecord::learning_rate, number_cell},
      {capitalized(record.examples) + " a second", &EpochRecord::images_per_second, rate_text},
      {"Waiting for data", &EpochRecord::data_wait_share, share_cell},
      {"Time", &EpochRecord::seconds, seconds_text}};
  std::erase_if(columns, [&](const EpochColumn& column) {
    return std::none_of(record.epochs.begin(), record.epochs.end(),
                        [&](const EpochRecord& epoch) { return (epoch.*column.member).has_value(); });
  });
  return columns;
}

void add_epochs(const RunRecord& record, HtmlPage& page) {
  if (record.epochs.empty()) return;
  constexpr size_t kMostUnfolded = 12;
  const auto columns = epoch_columns(record);
  HtmlTable table{.columns = {{"Epoch", true}}};
  for (const auto& column : columns) table.columns.push_back({column.name, true});
  const auto* best = best_epoch(record, &EpochRecord::validation_accuracy, std::greater<>());
  for (const auto& epoch : record.epochs) {
    if (&epoch == best) table.marked_rows.push_back(table.rows.size());
    std::vector<std::string> cells = {std::to_string(epoch.epoch)};
    for (const auto& column : columns) {
      const auto& value = epoch.*column.member;
      cells.push_back(value ? column.format(*value) : "\u2013");
    }
    table.rows.push_back(std::move(cells));
  }
  page.heading("Epochs");
  if (best != nullptr) page.paragraph("The epoch with the best validation accuracy is in bold.");
  const std::string html = html_table(table);
  if (table.rows.size() <= kMostUnfolded) {
    page.elements(html);
  } else {
    page.folded("All " + std::to_string(table.rows.size()) + " epochs", html);
  }
}

void add_memory_of_ranks(const std::vector<RankMemory>& ranks, HtmlPage& page) {
  if (ranks.empty()) return;
  HtmlTable table{.columns = {{"Memory per rank"}, {"Measured", true}, {"Predicted", true}}};
  for (const auto& part : parts_of_ranks(ranks)) {
    auto cells = cells_of(part);
    cells[0] = capitalized(cells[0]);
    if (part.name == "sum") table.marked_rows.push_back(table.rows.size());
    table.rows.push_back(std::move(cells));
  }
  page.paragraph(ranks.size() == 1
                     ? "Of the chief's rank, beside the formula."
                     : "Of each of the chief's ranks, beside the formula; from the least to the most "
                       "if they differ.");
  page.elements(html_table(table));
}

void add_memory(const RunRecord& record, HtmlPage& page) {
  if (!record.memory) return;
  const MemoryRecord& memory = *record.memory;
  HtmlTable table{.columns = {{"Memory"}, {"Size", true}, {"Bytes", true}}};
  const auto add = [&](const std::string& name, const std::optional<int64_t>& bytes) {
    if (bytes)
      table.rows.push_back({name, bytes_text(static_cast<uint64_t>(*bytes)), grouped_number(*bytes)});
  };
  add("Parameters", memory.parameters);
  add("Buffers of the model", memory.buffers);
  add("Gradients outside of communication buckets", memory.gradients);
  add("State of the optimizer", memory.optimizer_state);
  add("Communication buckets", memory.communication_buckets);
  add("Activations and temporary values of a step", memory.activations);
  add(memory.is_of_process ? "Peak of the process" : "Peak on the GPUs", memory.peak);
  page.heading("Memory");
  page.paragraph("Of the chief's replicas together.");
  page.elements(html_table(table));
  add_memory_of_ranks(memory.ranks, page);
}

void add_configuration(const RunRecord& record, HtmlPage& page) {
  if (record.configuration.empty()) return;
  HtmlTable table{.columns = {{"Name"}, {"Value"}, {"From"}}};
  for (const auto& [name, value, origin] : record.configuration) {
    if (origin != "default") table.marked_rows.push_back(table.rows.size());
    table.rows.push_back({name, value, origin});
  }
  page.heading("Configuration");
  page.paragraph("Values in bold were set for this run. The others are defaults.");
  page.elements(html_table(table));
}

}  // namespace

std::string report_html(const RunRecord& record) {
  HtmlPage page(record.title.empty() ? "Training run" : record.title);
  page.line(status_line(record.totals));
  if (!record.totals.reason.empty()) page.line(record.totals.reason);
  if (const std::string line = start_line(record.start); !line.empty()) page.line(line);
  page.key_figures(key_figures_of(record));
  const auto curves = report_curves(record);
  if (!curves.empty()) page.heading("Curves").figures(curves);
  add_reference_losses(record, page);
  add_samples(record, page);
  add_expert_load(record, page);
  add_pipeline(record, page);
  add_confusions(record, page);
  add_misclassified(record, page);
  add_epochs(record, page);
  add_memory(record, page);
  add_configuration(record, page);
  return page.html();
}

void write_report(const RunRecord& record, const std::string& path) {
  replace_file(path, report_html(record));
}

}  // namespace lockstep
