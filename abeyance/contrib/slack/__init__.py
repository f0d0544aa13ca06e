"""Questions in Slack: `abeyance slack` posts them, and answers them with what people press.

`web` calls Slack, `blocks` builds messages, `forms` builds modals and reads them. `desk` decides what is
posted where, `posting` follows the stream of all runs, `hearing` and `presses` take answers, and
`process` joins them. Start reading in `desk`.
"""
