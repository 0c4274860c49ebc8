#include "lockstep/training/reporting/html/internal/svg_shapes.h"

#include <cstdint>
#include <string_view>

#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/training/reporting/html/internal/html_text.h"

namespace lockstep {
namespace {

constexpr std::string_view kThinSpace = "\u202F";

std::string anchor_name(TextAnchor anchor) {
  switch (anchor) {
    case TextAnchor::kStart:
      return "start";
    case TextAnchor::kMiddle:
      return "middle";
    case TextAnchor::kEnd:
      break;
  }
  return "end";
}

/// Returns the width of the first character of `text` in font sizes, as in DejaVu Sans, the widest common
/// font. The first byte of a multi-byte character determines its width.
double character_width(std::string_view text) {
  const auto byte = static_cast<uint8_t>(text[0]);
  if (byte >= 0x80 && byte < 0xC0) return 0;
  if (text.starts_with(kThinSpace)) return 0.2;
  if (byte >= 0xE0) return 1.05;
  if (byte >= 0xC0) return 0.8;
  if (std::string_view(" !'(),./:;I[]fijlrt|").find(text[0]) != std::string_view::npos) return 0.42;
  if (std::string_view("%@MWmw").find(text[0]) != std::string_view::npos) return 1;
  return text[0] >= 'A' && text[0] <= 'Z' ? 0.78 : 0.64;
}

}  // namespace

std::string svg_number(double value) {
  std::string text = fixed_number(value, 2);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

double text_width(const std::string& text, double font_size) {
  double width = 0;
  for (size_t i = 0; i < text.size(); ++i) width += character_width(std::string_view(text).substr(i));
  return width * font_size;
}

std::string svg_line(const SvgPoint& from, const SvgPoint& to, const std::string& style) {
  return "<line class=\"" + style + "\" x1=\"" + svg_number(from.x) + "\" y1=\"" + svg_number(from.y) +
         "\" x2=\"" + svg_number(to.x) + "\" y2=\"" + svg_number(to.y) + "\"/>\n";
}

std::string svg_rectangle(const SvgBox& box, const std::string& style, const std::string& tip,
                          const std::string& attributes) {
  const std::string start = "<rect class=\"" + style + "\" x=\"" + svg_number(box.x) + "\" y=\"" +
                            svg_number(box.y) + "\" width=\"" + svg_number(box.width) + "\" height=\"" +
                            svg_number(box.height) + "\"" + attributes;
  return tip.empty() ? start + "/>\n" : start + "><title>" + escape_html(tip) + "</title></rect>\n";
}

std::string svg_path(const std::string& data, const std::string& style, const std::string& tip) {
  const std::string start = "<path class=\"" + style + "\" d=\"" + data + "\"";
  return tip.empty() ? start + "/>\n" : start + "><title>" + escape_html(tip) + "</title></path>\n";
}

std::string svg_text(const SvgPoint& baseline, const std::string& text, TextAnchor anchor,
                     const std::string& style, const std::string& attributes) {
  return "<text x=\"" + svg_number(baseline.x) + "\" y=\"" + svg_number(baseline.y) + "\" text-anchor=\"" +
         anchor_name(anchor) + "\"" + (style.empty() ? "" : " class=\"" + style + "\"") + attributes + ">" +
         escape_html(text) + "</text>\n";
}

std::string plot_figure(const PlotFigure& figure) {
  const std::string width = svg_number(figure.width);
  const std::string style = (figure.grows ? "" : "max-width:" + width + "px;") +
                            (figure.narrowest > 0 ? "min-width:" + svg_number(figure.narrowest) + "px" : "");
  constexpr double kColumn = 520;  // the widest that fits half a page
  const bool is_wide = !figure.grows && figure.width > kColumn;
  return "<figure class=\"chart" + std::string(is_wide ? " wide" : "") + "\">\n<figcaption>" +
         escape_html(figure.caption) + "</figcaption>\n" + figure.legend +
         "<div class=\"scroll\"><svg class=\"plot\" role=\"img\" aria-label=\"" +
         escape_html(figure.summary) + "\" viewBox=\"0 0 " + width + " " + svg_number(figure.height) + "\"" +
         (style.empty() ? "" : " style=\"" + style + "\"") + ">\n" + figure.shapes +
         "</svg></div>\n</figure>\n";
}

}  // namespace lockstep
