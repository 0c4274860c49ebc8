#include "lockstep/training/reporting/html/internal/report_texts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/training/reporting/html/internal/html_text.h"

namespace lockstep {
namespace {

constexpr const char* kThisModel = "this model, at its last test";

std::string sample_figure(const SampleText& sample) {
  const std::string prompt = sample.prompt.empty() ? "" : "<b>" + escape_html(sample.prompt) + "</b>";
  const std::string text =
      sample.text.empty() ? "<i>(the model ended the text at once)</i>" : escape_html(sample.text);
  return "<figure class=\"chart sample\"><figcaption>" + escape_html(sample.title) + "</figcaption>\n<p>" +
         prompt + text + "</p></figure>\n";
}

}  // namespace

void add_reference_losses(const RunRecord& record, HtmlPage& page) {
  if (record.reference_losses.empty()) return;
  std::vector<std::pair<std::string, double>> losses;
  for (const auto& reference : record.reference_losses) losses.emplace_back(reference.name, reference.loss);
  if (!record.epochs.empty() && record.epochs.back().validation_loss)
    losses.emplace_back(kThisModel, *record.epochs.back().validation_loss);
  std::stable_sort(losses.begin(), losses.end(),
                   [](const auto& a, const auto& b) { return a.second < b.second; });
  HtmlTable table{.columns = {{"Predictor"}, {"Nats a token", true}, {"Perplexity", true}}};
  for (const auto& [name, loss] : losses) {
    if (name == kThisModel) table.marked_rows.push_back(table.rows.size());
    table.rows.push_back({name, short_number(loss), short_number(std::exp(loss))});
  }
  page.heading("Losses compared");
  page.elements(html_table(table));
}

void add_samples(const RunRecord& record, HtmlPage& page) {
  if (record.samples.empty()) return;
  const std::string& last = record.samples.back().title;
  std::string shown;
  std::string earlier;
  for (const auto& sample : record.samples) (sample.title == last ? shown : earlier) += sample_figure(sample);
  page.heading("Sample texts");
  page.paragraph("Texts that the model wrote. What it was given to continue is in bold.");
  page.elements("<div class=\"samples\">\n" + shown + "</div>\n");
  if (!earlier.empty())
    page.folded("Texts of earlier tests", "<div class=\"samples\">\n" + earlier + "</div>\n");
}

}  // namespace lockstep
