"""Questions in Slack: `abeyance slack` posts them, and answers them with what people press.

`web` calls Slack, `blocks` says what a message shows, `forms` what a modal asks and was told. `desk`
decides what is posted where, `posting` follows the stream of all runs, `hearing` and `presses` take
answers, and `process` is all of it. Start reading in `desk`.
"""
